#include "ingot/run/eval/eval_tokens.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr double kTrainedPerEvaluated = 8;
constexpr double kForwardShare = 1.0 / 3;  // fraction of a step's FLOPs in the forward pass

}  // namespace

int64_t auto_eval_tokens(const EvalBudget& b) {
  const int64_t trained = b.first_tokens > 0 ? std::min(b.first_tokens, b.trained_tokens) : b.trained_tokens;
  const double affordable = static_cast<double>(trained) / kTrainedPerEvaluated;
  const double free = kFreeEvalFlops / (b.flops_per_token * kForwardShare);
  const double tokens = std::max(affordable, free) / static_cast<double>(b.texts);
  if (tokens >= static_cast<double>(b.text_tokens)) return 0;
  const int64_t batches = std::max<int64_t>(1, static_cast<int64_t>(tokens) / b.batch_tokens);
  return batches * b.batch_tokens >= b.text_tokens ? 0 : batches * b.batch_tokens;
}

}  // namespace ingot
