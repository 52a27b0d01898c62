#include "ingot/watch/watcher.h"

#include <chrono>
#include <map>
#include <thread>

#include "ingot/run/record/utc_time.h"
#include "ingot/run/run.h"
#include "ingot/watch/watch_frame.h"

namespace ingot {
namespace {

constexpr size_t kSliceOfFile = size_t{16} << 20;  // bytes read at once
constexpr double kStatusPause_s = 1;
constexpr int64_t kGrace_s = 5;  // in which a supervisor starts a run again
constexpr auto kSlice = std::chrono::milliseconds(100);

// The alternate screen without a cursor, and back.
constexpr const char* kEnter = "\x1b[?1049h\x1b[?25l";
constexpr const char* kLeave = "\x1b[?25h\x1b[?1049l";

double clock_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Puts the terminal back when it goes out of scope.
class Screen {
 public:
  explicit Screen(Terminal& terminal) : terminal_(terminal) { terminal_.write(kEnter); }
  ~Screen() { terminal_.write(kLeave); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Writes over the last frame, without clearing first, so that nothing flickers.
  void draw(const std::string& frame) {
    std::string text = "\x1b[H";
    for (const char c : frame) text += c == '\n' ? "\x1b[K\r\n" : std::string(1, c);
    if (text.ends_with("\r\n")) text.resize(text.size() - 2);  // the last line must not scroll the screen
    terminal_.write(text + "\x1b[J");
  }

 private:
  Terminal& terminal_;
};

class Watcher {
 public:
  Watcher(RunSet& runs, Terminal& terminal, const WatchOptions& options)
      : runs_(runs), terminal_(terminal), options_(options) {}

  int watch() {
    refresh();
    if (terminal_.is_live())
      watch_screen();
    else
      watch_lines();
    return code();
  }

 private:
  bool is_stop_requested() const {
    return (options_.is_stop_requested && *options_.is_stop_requested) || !terminal_.why_gone().empty();
  }

  void refresh() {
    runs_.refresh(kStatusPause_s);
    for (size_t i = 0; i < runs_.size(); ++i) {
      do runs_.run(i).refresh_metrics(kSliceOfFile);
      while (runs_.run(i).is_behind() && !is_stop_requested());
    }
  }

  bool has_ended(const RunView& run) const {
    if (!run.has_ended()) return false;
    const RunStatus& status = run.status();
    return status.status == "completed" || unix_now_s() - status.last_sign_s.value_or(0) >= kGrace_s;
  }
  bool have_ended() {
    if (runs_.size() == 0) return false;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (!has_ended(runs_.run(i))) return false;
    return true;
  }

  void watch_screen() {
    {
      Screen screen(terminal_);
      FrameSize drawn{.columns = 0, .rows = 0};
      for (double next_s = 0; !have_ended() && !is_stop_requested(); std::this_thread::sleep_for(kSlice)) {
        const FrameSize size{.columns = terminal_.columns(), .rows = terminal_.rows()};
        const bool is_resized = size.columns != drawn.columns || size.rows != drawn.rows;
        if (clock_s() < next_s && !is_resized) continue;
        refresh();
        screen.draw(watch_frame(runs_, size, unix_now_s()));
        drawn = size;
        next_s = clock_s() + kStatusPause_s;
      }
    }
    // The last lines of the runs stay readable above the shell's next prompt.
    for (size_t i = 0; i < runs_.size(); ++i) terminal_.write(watch_line(runs_.run(i), unix_now_s()) + "\n");
  }

  void watch_lines() {
    double next_s = 0;
    while (true) {
      refresh();
      const bool is_end = have_ended() || is_stop_requested();
      if (is_end || clock_s() >= next_s) {
        for (size_t i = 0; i < runs_.size(); ++i) print_line(i);
        next_s = clock_s() + options_.every_s;
      }
      if (is_end) return;
      std::this_thread::sleep_for(kSlice);
    }
  }

  // Prints nothing about a run that has not changed.
  void print_line(size_t index) {
    const RunStatus& status = runs_.run(index).status();
    std::string state = status.status + " " + std::to_string(status.steps);
    if (state == printed_[index]) return;
    printed_[index] = std::move(state);
    terminal_.write(watch_line(runs_.run(index), unix_now_s()) + "\n");
  }

  int code() {
    if (!have_ended()) return kExitInterrupted;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (const int code = exit_code_of(runs_.run(i)); code != 0) return code;
    return 0;
  }

  RunSet& runs_;
  Terminal& terminal_;
  WatchOptions options_;
  std::map<size_t, std::string> printed_;
};

}  // namespace

int exit_code_of(const RunView& run) {
  const RunStatus& status = run.status();
  if (status.status == "completed" || status.status == "stopped") return 0;
  if (status.status == "interrupted") return kExitInterrupted;
  const int64_t code = status.exit_code.value_or(1);
  return code > 0 && code < 256 ? static_cast<int>(code) : 1;
}

int watch_runs(RunSet& runs, Terminal& terminal, const WatchOptions& options) {
  return Watcher(runs, terminal, options).watch();
}

}  // namespace ingot
