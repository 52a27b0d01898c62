// auto_eval_tokens() decides how many tokens an evaluation predicts under eval.max_tokens = "auto".
//
// An evaluation predicts at most an eighth of the number of tokens that had been trained on when the first
// evaluation was due. The forward pass of a token costs about a third of its training step, so an evaluation
// takes about a twenty-fourth of the training time, and less than a tenth even if it is slower than the
// forward pass of training. The rule counts tokens and does not read a clock. All evaluations of a run
// therefore predict the same tokens, and so do those of a resumed run, on another machine or with another
// number of ranks.
#pragma once

#include <cstdint>

namespace ingot {

struct EvalBudget {
  int64_t first_tokens = 0;  // trained on when the first evaluation is due; 0 if it is at the end of the run
  int64_t trained_tokens = 0;  // so far; a run that is stopped early evaluates on fewer tokens
  double flops_per_token = 0;  // FLOPs of a training step (ModelConfig::flops_per_token)
  int64_t batch_tokens = 1;    // per global batch; an evaluation takes whole batches, at least one
  int64_t text_tokens = 0;     // predicted tokens of the whole validation text, of several the longest
  int64_t texts = 1;           // each of them takes as many tokens
};

// Number of FLOPs that an evaluation may always cost: about a second on a processor core.
inline constexpr double kFreeEvalFlops = 5e10;

// Returns the tokens that are evaluated of each text, a multiple of batch_tokens; 0 means the whole text.
int64_t auto_eval_tokens(const EvalBudget& budget);

}  // namespace ingot
