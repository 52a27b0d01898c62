// EvalWatch runs between the batches of an evaluation: it shows the progress and ends the evaluation on an
// interruption.
#pragma once

#include <cstdint>
#include <functional>

#include "ingot/comm/communicator.h"
#include "ingot/console/console.h"

namespace ingot {

// All ranks call it alike. About ten times a second they agree on whether to stop and on the elapsed time,
// and from those on the token count of their next agreement.
class EvalWatch {
 public:
  // Borrows all arguments. is_interrupted: returns true if this rank is asked to stop. time_s: a clock.
  EvalWatch(Console& console, Communicator& ranks, std::function<bool()> is_interrupted,
            std::function<double()> time_s);

  // Called after every batch with the number of tokens predicted so far and the total. Returns false if the
  // evaluation must stop.
  bool go_on(int64_t tokens, int64_t all_tokens);

 private:
  void show(int64_t tokens, int64_t all_tokens, double elapsed_s);

  Console& console_;
  Communicator& ranks_;
  std::function<bool()> is_interrupted_;
  std::function<double()> time_s_;
  double start_s_;
  int64_t next_tokens_ = 0;  // token count of the ranks' next agreement
  double next_line_s_;       // when a console without a live line prints next
};

}  // namespace ingot
