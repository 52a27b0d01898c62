// Defines the keys of the scaling rules.
#include "ingot/config/config_key_kinds.h"

namespace ingot::key_kinds {

void add_scaling_keys(std::vector<ConfigKey>& keys) {
  using S = ScalingConfig;
  const auto scaling = &RunConfig::scaling;
  keys.push_back(text("scaling.base", kCourse,
                      "preset or sizes (\"width=64 layers=2 batch=16 tokens=1e6\") for which the rates, "
                      "initialisation and decay were tuned; empty: off",
                      scaling, &S::base));
  keys.push_back(choice<WidthRule>(
      "scaling.width_rule", kCourse, {{"none", WidthRule::kNone}, {"mup", WidthRule::kMup}},
      "width; mup: rates and initialisation by Yang et al. 2022, arXiv:2203.03466", scaling, &S::width_rule));
  keys.push_back(choice<DepthRule>(
      "scaling.depth_rule", kCourse, {{"none", DepthRule::kNone}, {"sqrt", DepthRule::kSqrt}},
      "depth; sqrt: depth-muP by Yang et al. 2023, arXiv:2310.02244", scaling, &S::depth_rule));
  keys.push_back(choice<BatchRule>(
      "scaling.batch_rule", kCourse,
      {{"none", BatchRule::kNone}, {"sqrt", BatchRule::kSqrt}, {"linear", BatchRule::kLinear}},
      "rate over batch; sqrt: Malladi et al. 2022, arXiv:2205.10287 (Adam); linear: Goyal et al. 2017, "
      "arXiv:1706.02677 (SGD)",
      scaling, &S::batch_rule));
  keys.push_back(choice<TokensRule>(
      "scaling.tokens_rule", kCourse, {{"none", TokensRule::kNone}, {"timescale", TokensRule::kTimescale}},
      "tokens; timescale: rate x decay x steps is constant, Wang and Aitchison 2024, arXiv:2405.13698",
      scaling, &S::tokens_rule));
}

}  // namespace ingot::key_kinds
