#include "ingot/train/console.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ingot/core/error.h"

namespace ingot {

std::string format_count(double count) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, unit] : kUnits) {
    // 999.95 and more would print as 1000.0.
    if (count >= scale * 0.99995) return fmt::format("{:.{}f}{}", count / scale, scale >= 1e6 ? 2 : 1, unit);
  }
  return fmt::format("{:.0f}", count);
}

std::string format_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.1f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.0f} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.0f} kB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

std::string format_time(double seconds) {
  if (!(seconds >= 0) || seconds > 1e10) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 48 * 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string format_rate(double learning_rate) {
  if (!(learning_rate > 0)) return "0";
  std::string text = fmt::format("{:.1e}", learning_rate);  // 3.0e-04
  const size_t zero = text.find("e-0");
  if (zero != std::string::npos) text.erase(zero + 2, 1);
  return text;
}

std::string format_step(const StepReport& r) {
  const int width = static_cast<int>(fmt::format("{}", r.steps).size());
  const std::string count =
      r.steps > 0 ? fmt::format("{:>{}}/{}", r.step, width, r.steps) : fmt::format("{:>6}", r.step);
  std::string line =
      fmt::format("step {} {:5.1f}% | loss {:.4f} | norm {:.2f} | lr {} | {:.{}f} ms | {} tok/s", count,
                  100 * r.progress, r.loss, r.grad_norm, format_rate(r.lr), r.step_ms,
                  r.step_ms < 9.95 ? 1 : 0, format_count(r.tokens_per_s));
  line += r.mfu ? fmt::format(" | mfu {:.1f}%", 100 * *r.mfu) : std::string(" | mfu n/a");
  if (r.eta_s) line += " | eta " + format_time(*r.eta_s);
  return line;
}

std::string format_eval(const EvalReport& r) {
  std::string line = fmt::format("val step {} | loss {:.4f}", r.step, r.loss);
  if (r.bits_per_byte > 0) line += fmt::format(" | {:.3f} bits/byte", r.bits_per_byte);
  line += fmt::format(" | top-1 {:.1f}%", 100 * r.top1);
  if (r.is_best) line += " | best";
  return line;
}

std::string format_run(const RunReport& r) {
  std::string line = fmt::format("{} after {} steps | {} tokens", r.status, r.steps,
                                 format_count(static_cast<double>(r.tokens)));
  if (r.val_loss > 0) line += fmt::format(" | val loss {:.4f}", r.val_loss);
  if (r.val_bits_per_byte > 0) line += fmt::format(" | {:.3f} bits/byte", r.val_bits_per_byte);
  return line + fmt::format(" | {} (training {}) | peak memory {}", format_time(r.wall_s),
                            format_time(r.train_s), format_bytes(static_cast<double>(r.peak_rss_bytes)));
}

Console::Console(Sink sink, int columns) : sink_(std::move(sink)), columns_(columns) {}

Console::~Console() {
  try {
    clear_live();
    if (!is_at_line_start_) sink_("\n");
  } catch (...) {
    // A sink that fails here has nobody left to tell.
  }
  if (log_) std::fclose(log_);
}

std::unique_ptr<Console> Console::standard() {
  const auto sink = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const char* term = std::getenv("TERM");
  const bool is_live = isatty(STDOUT_FILENO) && term && *term && std::strcmp(term, "dumb") != 0;
  winsize size{};
  const bool has_size = is_live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return std::make_unique<Console>(sink, has_size ? size.ws_col : is_live ? 80 : 0);
}

void Console::open_log(const std::filesystem::path& path) {
  if (log_) std::fclose(log_);
  log_ = std::fopen(path.c_str(), "a");
  if (!log_) fail(ErrorKind::kDisk, "cannot write {}: {}", path.string(), std::strerror(errno));
}

void Console::write_log(std::string_view text) {
  if (!log_) return;
  std::fwrite(text.data(), 1, text.size(), log_);
  std::fputc('\n', log_);
  std::fflush(log_);
}

void Console::clear_live() {
  if (live_size_ == 0) return;
  sink_(fmt::format("\r{:{}}\r", "", live_size_));
  live_size_ = 0;
}

void Console::line(std::string_view text) {
  clear_live();
  if (!is_at_line_start_) {
    sink_("\n");
    if (log_) std::fputc('\n', log_);
  }
  is_at_line_start_ = true;
  sink_(fmt::format("{}\n", text));
  write_log(text);
}

void Console::warning(std::string_view text) { line(fmt::format("warning: {}", text)); }

void Console::step(const StepReport& report, bool is_logged) {
  if (columns_ > 0) {
    live(format_step(report));
    if (is_logged) write_log(format_step(report));
  } else if (is_logged) {
    line(format_step(report));
  }
}

void Console::eval(const EvalReport& report) { line(format_eval(report)); }
void Console::run(const RunReport& report) { line(format_run(report)); }

void Console::live(std::string_view text) {
  if (columns_ <= 0 || !is_at_line_start_) return;
  // One column stays free: a full last column makes some terminals wrap.
  text = text.substr(0, static_cast<size_t>(std::max(columns_ - 1, 1)));
  const size_t blanks = live_size_ - std::min(live_size_, text.size());
  sink_(fmt::format("\r{}{:{}}", text, "", blanks));
  live_size_ = text.size();
}

void Console::stream(std::string_view text) {
  if (text.empty()) return;
  clear_live();
  sink_(text);
  is_at_line_start_ = text.back() == '\n';
  if (log_) {
    std::fwrite(text.data(), 1, text.size(), log_);
    std::fflush(log_);
  }
}

}  // namespace ingot
