// Terminal: the standard output of a long run. It may be a terminal, a pipe or a file, its reader may stop
// reading or go away, and none of that may hold the run up or end it.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace ingot {

class Terminal {
 public:
  struct Options {
    int fd = 1;               // borrowed: stays open
    bool allows_live = true;  // false where another program relays the output, as mpirun does
    // Set once the run is told to end (by a signal): from then on write() waits a fraction of a second at
    // most for a reader that does not read. Null: it waits as long as it takes.
    const std::atomic<bool>* is_told_to_end = nullptr;
  };

  Terminal();
  explicit Terminal(const Options& options);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // True on a terminal whose line can be written again: TERM is set and not "dumb", and live lines are
  // allowed.
  bool is_live() const { return is_live_; }
  // The width in characters, asked anew at each call, as a window may be resized; 0 if not live.
  int columns() const;

  // Writes all of the text, unless the reader has gone (a closed pipe, a vanished terminal) or, once told to
  // end, does not read. REQUIRES: SIGPIPE is ignored, or ends the program as ever. One thread at a time.
  void write(std::string_view text);

  // Empty while the text arrives; afterwards why it does not ("Broken pipe"). What is written then is lost.
  const std::string& why_gone() const { return why_gone_; }

 private:
  bool wait_for_room(bool has_refused);

  Options options_;
  bool is_live_ = false;
  bool is_file_ = false;  // it always has room
  int own_fd_ = -1;       // the same pipe or terminal, opened again so as not to block
  int waited_ms_ = 0;     // for a reader, since the run was told to end
  std::string why_gone_;
};

}  // namespace ingot
