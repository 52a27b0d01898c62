// EvalWatch: what goes on between the batches of an evaluation: its progress is shown, and an interruption
// ends it.
#pragma once

#include <cstdint>
#include <functional>

#include "ingot/console/console.h"
#include "ingot/train/reduce.h"

namespace ingot {

// All ranks call it alike. They agree on whether to stop and on the time that has passed about ten times a
// second, and for that reason on which calls they do so.
class EvalWatch {
 public:
  // is_interrupted: whether this rank is asked to stop. time_s: a clock. All four are borrowed.
  EvalWatch(Console& console, Reducer& ranks, std::function<bool()> is_interrupted,
            std::function<double()> time_s);

  // Called after every batch with the tokens predicted so far and those of the whole evaluation. Returns
  // false if the evaluation is to stop.
  bool go_on(int64_t tokens, int64_t all_tokens);

 private:
  void show(int64_t tokens, int64_t all_tokens, double elapsed_s);

  Console& console_;
  Reducer& ranks_;
  std::function<bool()> is_interrupted_;
  std::function<double()> time_s_;
  double start_s_;
  int64_t next_tokens_ = 0;  // the ranks agree again from here on
  double next_line_s_;       // when a console without a live line prints next
};

}  // namespace ingot
