// Defines the keys of the loss scale, of FP8 linears and of the loss head.
#include "ingot/config/config_key_kinds.h"

namespace ingot::key_kinds {

void add_loss_scale_keys(std::vector<ConfigKey>& keys) {
  using P = PrecisionConfig;
  using S = LossScalerConfig;
  const auto precision = &RunConfig::precision;
  keys.push_back(or_word(number("precision.loss_scale", kCourse,
                                "f16: loss scale, taken out again before the update; dynamic: as "
                                "large as the gradients allow",
                                precision, &P::loss_scale, &S::constant),
                         "dynamic", precision, &P::loss_scale, &S::constant));
  keys.push_back(number("precision.loss_scale_init", kCourse, "dynamic: initial loss scale", precision,
                        &P::loss_scale, &S::init));
  keys.push_back(whole("precision.loss_scale_interval", kCourse, 1, kMany,
                       "dynamic: steps without overflow after which the scale doubles", precision,
                       &P::loss_scale, &S::growth_interval));
  keys.push_back(whole("precision.loss_scale_hysteresis", kCourse, 1, 1 << 20,
                       "dynamic: overflows since the last growth that halve the scale", precision,
                       &P::loss_scale, &S::hysteresis));
  keys.push_back(number("precision.loss_scale_min", kCourse, "dynamic: an overflow at this scale is an error",
                        precision, &P::loss_scale, &S::min));
}

void add_fp8_keys(std::vector<ConfigKey>& keys) {
  using P = PrecisionConfig;
  using F = Fp8LinearConfig;
  const auto precision = &RunConfig::precision;
  keys.push_back(choice<Fp8Recipe>("precision.fp8", kState,
                                   {{"none", Fp8Recipe::kNone},
                                    {"tensorwise", Fp8Recipe::kTensorwise},
                                    {"rowwise", Fp8Recipe::kRowwise},
                                    {"rowwise_gw_hp", Fp8Recipe::kRowwiseGwHp},
                                    {"delayed", Fp8Recipe::kDelayed}},
                                   "FP8 recipe of the blocks' linears while training", precision, &P::fp8,
                                   &F::recipe));
  keys.push_back(texts("precision.fp8_layers", kState,
                       "patterns of the linears in FP8 (blocks.*.mlp.*); empty: all", precision, &P::fp8,
                       &F::layers));
  keys.push_back(whole("precision.fp8_amax_history", kState, 1, 4096, "delayed: steps of amax history",
                       precision, &P::fp8, &F::amax_history));
  keys.push_back(whole("precision.fp8_margin", kCourse, 0, 4096,
                       "delayed: powers of two left above the largest value", precision, &P::fp8,
                       &F::margin));
}

void add_head_keys(std::vector<ConfigKey>& keys) {
  using H = HeadConfig;
  const auto head = &RunConfig::head;
  keys.push_back(choice<HeadKind>(
      "head.kind", kCourse,
      {{"dense", HeadKind::kDense}, {"chunked", HeadKind::kChunked}, {"recompute", HeadKind::kRecompute}},
      "loss head: logits of all tokens at once, by chunks of tokens, or recomputed in tiles", head,
      &H::kind));
  keys.push_back(choice<HeadPrecision>(
      "head.precision", kCourse,
      {{"compute", HeadPrecision::kCompute},
       {"f32", HeadPrecision::kF32},
       {"bf16", HeadPrecision::kBf16},
       {"fp8", HeadPrecision::kFp8}},
      "dtype of the head's products; fp8: in training only, bf16 in evaluation", head, &H::precision));
  keys.push_back(choice<HeadAccumulation>(
      "head.accumulation", kCourse, {{"f32", HeadAccumulation::kF32}, {"kahan", HeadAccumulation::kKahan}},
      "accumulation of the head's weight gradient over the chunks", head, &H::accumulation));
  keys.push_back(choice<LossDtype>(
      "head.loss_dtype", kCourse,
      {{"f32", LossDtype::kF32}, {"bf16_logits", LossDtype::kBf16Logits}, {"bf16", LossDtype::kBf16}},
      "dtype of the training loss; bf16_logits rounds only the logits, bf16 demonstrates what goes wrong "
      "(docs/numerics.md)",
      head, &H::loss_dtype));
  keys.push_back(number("head.z_loss", kCourse,
                        "z-loss: weight of the squared log-sum-exp in the loss; 0: off", head, &H::z_loss));
  keys.push_back(
      number("head.label_smoothing", kCourse, "label smoothing, in [0, 1)", head, &H::label_smoothing));
  keys.push_back(number("head.filter", kCourse,
                        "recompute: skip tiles whose logit gradients are all below this; 0: exact", head,
                        &H::filter));
  keys.push_back(choice<Fp8HeadScaling>(
      "head.fp8_scaling", kCourse,
      {{"static", Fp8HeadScaling::kStatic}, {"current", Fp8HeadScaling::kCurrent}},
      "FP8 scales of the head: fixed, or from each tensor's amax", head, &H::fp8_scaling));
  keys.push_back(
      number("head.fp8_x_scale", kCourse, "static scale of the head's input", head, &H::fp8_x_scale));
  keys.push_back(
      number("head.fp8_w_scale", kCourse, "static scale of the head's weights", head, &H::fp8_w_scale));
  keys.push_back(whole("head.raw_ce_every", kCourse, 0, kMany,
                       "steps between checks of the loss against f32; 0: never", head, &H::raw_ce_every));
  keys.push_back(
      whole("head.raw_ce_tokens", kCourse, 1, 1 << 20, "tokens of each check", head, &H::raw_ce_tokens));
  keys.push_back(number("head.raw_ce_limit", kCourse, "relative difference from f32 at which the run stops",
                        head, &H::raw_ce_limit));
  keys.push_back(number("head.raw_ce_bias_limit", kCourse,
                        "relative difference that stops the run if three checks in a row have the same sign; "
                        "0: derived from the formats' rounding",
                        head, &H::raw_ce_bias_limit));
  keys.push_back(
      number("dpo.beta", kCourse,
             "weight of the rewards in DPO's loss on pairs of answers, such as 0.1; 0: the data are "
             "no pairs",
             head, &H::dpo_beta));
}

}  // namespace ingot::key_kinds
