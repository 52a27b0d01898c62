// Batch-size ramp (Brown et al. 2020, arXiv:2005.14165, appendix B): steps grow by stages, from few
// micro-batches to the full number. How many tokens the run has taken so far decides alone, and the stream of
// samples knows nothing of it: the same samples come in the same order, only more of them make a step.
#pragma once

#include <cstdint>
#include <vector>

namespace ingot {

struct BatchStage {
  int64_t micro_batches = 1;  // of a step that begins before `until_tokens`
  int64_t until_tokens = 0;
  bool operator==(const BatchStage&) const = default;
};

class BatchRamp {
 public:
  // Stages in order, then `full` micro-batches; each of micro_tokens tokens. kUsage error unless counts and
  // token numbers rise from stage to stage up to `full`.
  BatchRamp(std::vector<BatchStage> stages, int64_t full, int64_t micro_tokens);

  // Micro-batches of the step that begins when `tokens` have been taken.
  int64_t micro_batches(int64_t tokens) const;
  // Tokens of that step.
  int64_t step_tokens(int64_t tokens) const { return micro_batches(tokens) * micro_tokens_; }
  // Tokens taken before the 0-based step, in a run without skipped batches.
  int64_t tokens_before(int64_t step) const;
  // Steps that such a run needs to take at least `tokens`.
  int64_t steps_for(int64_t tokens) const;

 private:
  std::vector<BatchStage> stages_;
  int64_t full_, micro_tokens_;
};

}  // namespace ingot
