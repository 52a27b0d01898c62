// eval_tokens: how many tokens an evaluation predicts under eval.max_tokens = "auto".
//
// The forward pass of a token costs about a third of its training step. An evaluation takes at most an eighth
// as many tokens as were trained on when the first evaluation was due: about a twenty-fourth of the training
// time, and less than a tenth where evaluation is slower than the forward pass of training. The rule counts
// tokens and reads no clock, so every evaluation of a run takes the same tokens, and so do a resumed run,
// another machine and another number of ranks.
#pragma once

#include <cstdint>

namespace ingot {

struct EvalBudget {
  int64_t first_tokens =
      0;  // trained on when the first evaluation is due; 0: only the end of the run has one
  int64_t trained_tokens = 0;  // so far; a run that is stopped early evaluates on fewer tokens
  double flops_per_token = 0;  // for a training step (ModelConfig::flops_per_token)
  int64_t batch_tokens = 1;    // in a global batch; evaluations take whole ones, at least one
  int64_t text_tokens = 0;     // that the validation text has to predict
};

// FLOPs that an evaluation may always cost: about a second on a processor core.
inline constexpr double kFreeEvalFlops = 5e10;

// Tokens of the evaluation, a multiple of batch_tokens. 0: all of the text.
int64_t auto_eval_tokens(const EvalBudget& budget);

}  // namespace ingot
