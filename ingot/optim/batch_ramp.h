// Batch-size ramp (Brown et al. 2020, arXiv:2005.14165, appendix B): the batch grows in stages from a
// few micro-batches per step to the full number. Only the number of tokens taken so far determines the
// stage. The stream of samples does not depend on it: the same samples come in the same order, but more
// of them make a step.
#pragma once

#include <cstdint>
#include <vector>

namespace ingot {

struct BatchStage {
  int64_t micro_batches = 1;  // per step that begins before `until_tokens`
  int64_t until_tokens = 0;
  bool operator==(const BatchStage&) const = default;
};

class BatchRamp {
 public:
  // Runs the stages in order, then uses `full` micro-batches per step, each of micro_tokens tokens. Throws
  // a kUsage error unless counts and token numbers rise from stage to stage up to `full`.
  BatchRamp(std::vector<BatchStage> stages, int64_t full, int64_t micro_tokens);

  // Micro-batches of the step that begins after `tokens` tokens.
  int64_t micro_batches(int64_t tokens) const;
  // Tokens of that step.
  int64_t step_tokens(int64_t tokens) const { return micro_batches(tokens) * micro_tokens_; }
  // Tokens taken before the 0-based step in a run without skipped batches.
  int64_t tokens_before(int64_t step) const;
  // Steps that such a run needs to take at least `tokens`.
  int64_t steps_for(int64_t tokens) const;

 private:
  std::vector<BatchStage> stages_;
  int64_t full_, micro_tokens_;
};

}  // namespace ingot
