#include "ingot/run/run_eval.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ingot {
namespace {

// Returns the tokens of one source that an evaluation asks for; 0 means all.
int64_t tokens_of_source(const MixSource& source, int64_t max_tokens) {
  if (max_tokens == 0) return 0;
  return std::max<int64_t>(1, std::llround(source.share * static_cast<double>(max_tokens)));
}

// About how many tokens of the source will be predicted.
int64_t planned_tokens(const MixSource& source, int64_t max_tokens) {
  const int64_t all = source.val.tokens() - 1, wanted = tokens_of_source(source, max_tokens);
  return wanted == 0 ? all : std::min(all, wanted);
}

}  // namespace

RunEval evaluate_run(const RunData& data, int64_t max_tokens, const EvaluateStream& evaluate,
                     const EvalProgress& goes_on) {
  RunEval sum;
  if (data.mix.empty() || data.mix.front().val.tokens() == 0) {
    sum.result = evaluate(data.val, max_tokens, goes_on);
    return sum;
  }
  int64_t planned = 0;
  for (const MixSource& source : data.mix) planned += planned_tokens(source, max_tokens);
  double bytes_per_token = 0;
  bool knows_bytes = true;
  for (const MixSource& source : data.mix) {
    const int64_t done = sum.result.tokens;
    const EvalProgress progress = [&](int64_t tokens, int64_t) {
      return !goes_on || goes_on(done + tokens, std::max(planned, done + tokens));
    };
    const EvalResult one = evaluate(source.val, tokens_of_source(source, max_tokens), progress);
    sum.losses.emplace_back(source.name, one.loss);
    sum.result.loss += source.share * one.loss;
    sum.result.top1 += source.share * one.top1;
    sum.result.tokens += one.tokens;
    sum.result.text_tokens += one.text_tokens;
    sum.result.is_complete = one.is_complete;
    if (!one.is_complete) return sum;
    knows_bytes &= one.bits_per_byte > 0;
    if (knows_bytes) bytes_per_token += source.share * one.loss / (std::numbers::ln2 * one.bits_per_byte);
  }
  if (knows_bytes) sum.result.bits_per_byte = sum.result.loss / (std::numbers::ln2 * bytes_per_token);
  return sum;
}

}  // namespace ingot
