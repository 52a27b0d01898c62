// The keys of the loss scale, of FP8 linears and of the loss head.
#include "ingot/config/config_key_kinds.h"

namespace ingot::key_kinds {

void add_loss_scale_keys(std::vector<ConfigKey>& keys) {
  using P = PrecisionConfig;
  using S = LossScalerConfig;
  const auto precision = &RunConfig::precision;
  keys.push_back(or_word(number("precision.loss_scale",
                                "f16: factor of the loss in backward, taken out of the update; dynamic: as "
                                "large as the gradients allow",
                                precision, &P::loss_scale, &S::constant),
                         "dynamic", precision, &P::loss_scale, &S::constant));
  keys.push_back(
      number("precision.loss_scale_init", "dynamic: at the start", precision, &P::loss_scale, &S::init));
  keys.push_back(whole("precision.loss_scale_interval", 1, kMany,
                       "dynamic: steps without overflow after which it doubles", precision, &P::loss_scale,
                       &S::growth_interval));
  keys.push_back(whole("precision.loss_scale_hysteresis", 1, 1 << 20,
                       "dynamic: overflows since it last grew until one halves it", precision, &P::loss_scale,
                       &S::hysteresis));
  keys.push_back(number("precision.loss_scale_min", "dynamic: an overflow at this scale is an error",
                        precision, &P::loss_scale, &S::min));
}

void add_fp8_keys(std::vector<ConfigKey>& keys) {
  using P = PrecisionConfig;
  using F = Fp8LinearConfig;
  const auto precision = &RunConfig::precision;
  keys.push_back(
      choice<Fp8Recipe>("precision.fp8",
                        {{"none", Fp8Recipe::kNone},
                         {"tensorwise", Fp8Recipe::kTensorwise},
                         {"rowwise", Fp8Recipe::kRowwise},
                         {"rowwise_gw_hp", Fp8Recipe::kRowwiseGwHp},
                         {"delayed", Fp8Recipe::kDelayed}},
                        "products of the blocks' linears in FP8 while training: where scales come from",
                        precision, &P::fp8, &F::recipe));
  keys.push_back(texts("precision.fp8_layers",
                       "names of the linears in FP8, * for anything (blocks.*.mlp.*); empty: all", precision,
                       &P::fp8, &F::layers));
  keys.push_back(whole("precision.fp8_amax_history", 1, 4096,
                       "delayed: steps whose largest value sets the scale", precision, &P::fp8,
                       &F::amax_history));
  keys.push_back(whole("precision.fp8_margin", 0, 4096, "delayed: octaves left above the largest value",
                       precision, &P::fp8, &F::margin));
}

void add_head_keys(std::vector<ConfigKey>& keys) {
  using H = HeadConfig;
  const auto head = &RunConfig::head;
  keys.push_back(choice<HeadKind>(
      "head.kind",
      {{"dense", HeadKind::kDense}, {"chunked", HeadKind::kChunked}, {"recompute", HeadKind::kRecompute}},
      "logits of all tokens at once, chunk by chunk, or computed twice in tiles", head, &H::kind));
  keys.push_back(choice<HeadDtype>("head.precision",
                                   {{"compute", HeadDtype::kCompute},
                                    {"f32", HeadDtype::kF32},
                                    {"bf16", HeadDtype::kBf16},
                                    {"fp8", HeadDtype::kFp8}},
                                   "of the head's products; fp8: while training, bf16 in evaluation", head,
                                   &H::precision));
  keys.push_back(choice<HeadAccumulation>(
      "head.accumulation", {{"f32", HeadAccumulation::kF32}, {"kahan", HeadAccumulation::kKahan}},
      "of the head's weight gradient over the chunks", head, &H::accumulation));
  keys.push_back(choice<LossDtype>(
      "head.loss_dtype",
      {{"f32", LossDtype::kF32}, {"bf16_logits", LossDtype::kBf16Logits}, {"bf16", LossDtype::kBf16}},
      "of the training loss; bf16: a demonstration of what goes wrong (docs/numerics.md)", head,
      &H::loss_dtype));
  keys.push_back(
      number("head.z_loss", "weight of the squared log-sum-exp in the loss; 0: off", head, &H::z_loss));
  keys.push_back(number("head.label_smoothing", "probability spread over all tokens, in [0, 1)", head,
                        &H::label_smoothing));
  keys.push_back(number("head.filter",
                        "recompute: tiles whose logits' gradients are all below add nothing; 0: exact", head,
                        &H::filter));
  keys.push_back(choice<Fp8HeadScaling>(
      "head.fp8_scaling", {{"static", Fp8HeadScaling::kStatic}, {"current", Fp8HeadScaling::kCurrent}},
      "fixed scales, or each tensor's own largest value", head, &H::fp8_scaling));
  keys.push_back(number("head.fp8_x_scale", "static scale of the head's input", head, &H::fp8_x_scale));
  keys.push_back(number("head.fp8_w_scale", "static scale of the head's weights", head, &H::fp8_w_scale));
  keys.push_back(whole("head.raw_ce_every", 0, kMany,
                       "steps between checks of the loss against f32; 0: never", head, &H::raw_ce_every));
  keys.push_back(
      whole("head.raw_ce_tokens", 1, 1 << 20, "tokens whose loss is checked", head, &H::raw_ce_tokens));
  keys.push_back(number("head.raw_ce_limit", "allowed relative difference, beyond which the run stops", head,
                        &H::raw_ce_limit));
  keys.push_back(
      number("head.raw_ce_bias_limit",
             "the same for three checks in a row to one side; 0: what the formats' rounding explains", head,
             &H::raw_ce_bias_limit));
}

}  // namespace ingot::key_kinds
