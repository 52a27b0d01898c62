#include "ingot/train/loss_watch.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// For 16-bit formats, which may hold the logits themselves, two units of the last place. FP8 holds only
// operands, whose errors average out over the width, so half a unit is enough. An f32 path differs only
// in the order of its sums.
constexpr double kF32Bias = 1e-4, kF16Bias = 2 * 0x1p-11, kBf16Bias = 2 * 0x1p-8, kFp8Bias = 0x1p-4 / 2;

double bias_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return kF16Bias;
    case DType::bf16:
      return kBf16Bias;
    default:
      return kF32Bias;
  }
}

double bias_of_head(const RunConfig& config) {
  switch (config.head.precision) {
    case HeadPrecision::kFp8:
      return kFp8Bias;
    case HeadPrecision::kBf16:
      return kBf16Bias;
    case HeadPrecision::kF32:
      return kF32Bias;
    case HeadPrecision::kCompute:
    case HeadPrecision::kF16:
      break;
  }
  return bias_of(config.precision.compute);
}

// The limit grows for fewer tokens, because their mean scatters more.
double allowed(double relative, double loss, int64_t tokens) {
  const double scatter =
      std::sqrt(std::max(1.0, static_cast<double>(kLossWatchTokens) / static_cast<double>(tokens)));
  return relative * scatter * std::max(1.0, loss);
}

[[noreturn]] void refuse(int64_t step, const std::string& found, const std::string& key) {
  fail(ErrorKind::kNumerics,
       "step {}: {}; what is trained on is not the loss any more, and the update was not made. Set "
       "head.precision or precision.compute to f32 to find the cause; {}",
       step, found, key);
}

}  // namespace

LossBiasLimits loss_bias_limits(const RunConfig& config) {
  if (const double set = config.head.raw_ce_bias_limit; set > 0) return {set, set};
  LossBiasLimits limits;
  limits.head = std::max(bias_of_head(config), config.precision.allows_tf32 ? kF16Bias : 0.0);
  const bool has_fp8_linears = config.precision.fp8.recipe != Fp8Recipe::kNone;
  limits.forward =
      std::max({limits.head, bias_of(config.precision.compute), has_fp8_linears ? kFp8Bias : 0.0});
  return limits;
}

LossWatch::LossWatch(const RunConfig& config)
    : limit_(config.head.raw_ce_limit), bias_(loss_bias_limits(config)) {}

bool LossWatch::Sustained::add(double gap, double limit) {
  const bool is_beyond = std::abs(gap) > limit;
  const bool continues = is_beyond && checks > 0 && is_above == (gap > 0);
  checks = continues ? checks + 1 : is_beyond ? 1 : 0;
  is_above = gap > 0;
  return checks >= kChecksInARow;
}

void LossWatch::check(const RawLoss& raw, int64_t step) {
  const auto judge = [&](Sustained& sustained, double trained, double exact, int64_t tokens, double bias,
                         const char* what) {
    if (tokens == 0) return;
    const double gap = trained - exact, most = allowed(bias, exact, tokens);
    const std::string found =
        fmt::format("the training path gives {} tokens a loss of {:.4f}, but {} it is {:.4f}", tokens,
                    trained, what, exact);
    if (std::abs(gap) > limit_ * std::max(1.0, exact))
      refuse(step, found, fmt::format("head.raw_ce_limit = {} is the difference allowed", limit_));
    if (sustained.add(gap, most))
      refuse(step, fmt::format("{}, and the last {} checks all lie to this side", found, kChecksInARow),
             fmt::format("rounding explains a difference of {:.2g} (head.raw_ce_bias_limit)", most));
  };
  judge(head_, raw.trained, raw.objective, raw.tokens, bias_.head, "in f32 from the master weights");
  judge(forward_, raw.forward_trained, raw.forward_objective, raw.forward_tokens, bias_.forward,
        "by a forward pass in f32 from the master weights");
}

}  // namespace ingot
