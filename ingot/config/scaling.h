// Scaling rules carry the numbers that were tuned on a small run to a larger one. The configuration's own
// learning rates, initialisation and decay are those of the base; resolve_scaling() replaces them by the
// numbers for the run's sizes, so that nothing after it knows of a base. docs/scaling-rules.md explains them.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

struct RunConfig;

// kMup: maximal update parametrisation (Yang et al. 2022, arXiv:2203.03466, table 3).
enum class WidthRule : uint8_t { kNone, kMup };
// kSqrt: depth-muP, branches times 1/sqrt(layers) (Yang et al. 2023, arXiv:2310.02244).
enum class DepthRule : uint8_t { kNone, kSqrt };
// kSqrt: rate times sqrt(batch) (Malladi et al. 2022, arXiv:2205.10287), for Adam. kLinear: rate times batch
// (Goyal et al. 2017, arXiv:1706.02677), for SGD.
enum class BatchRule : uint8_t { kNone, kSqrt, kLinear };
// kTimescale: lr * weight_decay * steps is constant (Wang and Aitchison 2024, arXiv:2405.13698).
enum class TokensRule : uint8_t { kNone, kTimescale };

struct ScalingConfig {
  std::string base;  // a preset, or sizes such as "width=64 layers=2 batch=16 tokens=1e6"; empty: off
  WidthRule width_rule = WidthRule::kMup;
  DepthRule depth_rule = DepthRule::kNone;
  BatchRule batch_rule = BatchRule::kNone;
  TokensRule tokens_rule = TokensRule::kNone;
};

// Replaces the numbers of the base by those of the run and empties scaling.base, so that a second call
// changes nothing. Returns one line for the run's header, or "" if scaling.base is empty. Throws a kUsage
// error that names the key and the fix if a rule has no answer for the configuration.
std::string resolve_scaling(RunConfig& config);

}  // namespace ingot
