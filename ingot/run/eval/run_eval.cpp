#include "ingot/run/eval/run_eval.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace ingot {
namespace {

// A text that an evaluation reads.
struct EvalPart {
  std::string name;  // empty for the validation text of a run without a mixture
  const TokenSource* text = nullptr;
  double share = 1;           // in the loss of the run; a further validation text has none
  int64_t wanted_tokens = 0;  // 0 means all

  // About how many tokens will be predicted.
  int64_t planned_tokens() const {
    const int64_t all = text->tokens() - 1;
    return wanted_tokens == 0 ? all : std::min(all, wanted_tokens);
  }
};

std::vector<EvalPart> parts_of(const RunData& data, int64_t max_tokens) {
  std::vector<EvalPart> parts;
  if (data.mix.empty() || data.mix.front().val.tokens() == 0) {
    parts.push_back({.name = "", .text = &data.val, .wanted_tokens = max_tokens});
  } else {
    for (const MixSource& source : data.mix) {
      const auto share_tokens = std::llround(source.share * static_cast<double>(max_tokens));
      parts.push_back({.name = source.name,
                       .text = &source.val,
                       .share = source.share,
                       .wanted_tokens = max_tokens == 0 ? 0 : std::max<int64_t>(1, share_tokens)});
    }
  }
  for (const ValidationSet& set : data.sets)
    parts.push_back({.name = set.name, .text = &set.tokens, .share = 0, .wanted_tokens = max_tokens});
  return parts;
}

}  // namespace

double RunEval::loss_of(const std::string& name) const {
  if (name.empty()) return result.loss;
  const auto found = std::ranges::find(losses, name, &std::pair<std::string, double>::first);
  return found == losses.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

RunEval evaluate_run(const RunData& data, int64_t max_tokens, const EvaluateStream& evaluate,
                     const EvalProgress& should_continue) {
  const std::vector<EvalPart> parts = parts_of(data, max_tokens);
  RunEval sum;
  int64_t planned = 0, done = 0;
  for (const EvalPart& part : parts) planned += part.planned_tokens();
  double bytes_per_token = 0;
  bool knows_bytes = true;
  for (const EvalPart& part : parts) {
    const EvalProgress progress = [&](int64_t tokens, int64_t all) {
      if (!should_continue) return true;
      return should_continue(done + tokens, parts.size() == 1 ? all : std::max(planned, done + tokens));
    };
    const EvalResult one = evaluate(*part.text, part.wanted_tokens, progress);
    done += one.tokens;
    sum.result.is_complete = one.is_complete;
    if (!one.is_complete) return sum;
    if (part.name.empty()) {
      sum.result = one;
      continue;
    }
    sum.losses.emplace_back(part.name, one.loss);
    if (part.share == 0) continue;
    sum.result.loss += part.share * one.loss;
    sum.result.top1 += part.share * one.top1;
    sum.result.tokens += one.tokens;
    sum.result.text_tokens += one.text_tokens;
    knows_bytes &= one.bits_per_byte > 0;
    if (!knows_bytes) continue;
    bytes_per_token += part.share * one.loss / (std::numbers::ln2 * one.bits_per_byte);
    sum.result.bits_per_byte = sum.result.loss / (std::numbers::ln2 * bytes_per_token);
  }
  if (!knows_bytes) sum.result.bits_per_byte = 0;
  return sum;
}

}  // namespace ingot
