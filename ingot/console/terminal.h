// Terminal is the standard output of a long run, which may be a terminal, a pipe or a file. A reader that
// goes away does not end the run, and one that stops reading cannot keep it from ending.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace ingot {

class Terminal {
 public:
  struct Options {
    int fd = 1;               // borrowed; not closed
    bool allows_live = true;  // false if another program relays the output, as mpirun does
    // Set by a signal that asks the run to end. From then on write() waits at most a fraction of a second
    // for a reader that does not read. If null, write() waits as long as it takes.
    const std::atomic<bool>* is_stop_requested = nullptr;
  };

  Terminal();
  explicit Terminal(const Options& options);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Returns true for a terminal with a line that can be redrawn: TERM is set and not "dumb", and options
  // allow live lines.
  bool is_live() const { return is_live_; }
  // Returns the width in characters; 0 if not live. Each call queries it, because a window may be resized.
  int columns() const;
  // Returns the height in lines, in the same way.
  int rows() const;

  // Writes the whole text unless the reader has gone (a closed pipe, a vanished terminal), the disk is full,
  // or the run was asked to end and the reader does not read. One thread at a time may call it. REQUIRES:
  // SIGPIPE is ignored; otherwise a closed pipe ends the program.
  void write(std::string_view text);

  // Returns the reason why output failed ("Broken pipe"); empty while output works. Later output is dropped.
  const std::string& why_gone() const { return why_gone_; }

 private:
  bool wait_for_room(bool has_refused);

  Options options_;
  bool is_live_ = false;
  bool is_file_ = false;  // always has room
  int own_fd_ = -1;       // the same pipe or terminal, opened again as non-blocking
  int waited_ms_ = 0;     // time spent waiting for a reader since the run was asked to end
  std::string why_gone_;
};

}  // namespace ingot
