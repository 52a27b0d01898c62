// Tests the head inside the model: every kind and precision gives the losses and gradients of the plain
// head, evaluation never uses FP8, and the raw-loss check detects weights that are not the masters.
#include "ingot/nn/loss_head.h"

#include <gtest/gtest.h>

#include "ingot/core/float8.h"
#include "tests/nn/small_model.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

ModelConfig tiny_model() {
  ModelConfig c = {.layers = 1,
                   .heads = 2,
                   .width = 32,
                   .context = 16,
                   .vocab = 61,
                   .is_tied = false,
                   .cap = {.kind = LogitCap::kSigmoid, .a = 30, .b = 0, .c = 7.5},
                   .init_std = 0.3};
  return c;
}

// A model with a head, and one micro-batch.
struct Rig : SmallModel {
  static constexpr int64_t kB = 2, kT = 16;

  Rig(const HeadConfig& head, DType compute) : SmallModel(tiny_model(), compute, kB, kT, 3, head) {
    for (int32_t n = 0; n < kB * kT; ++n) {
      batch.tokens.push_back(n * 7 % 61);
      targets.push_back(n % 5 == 2 ? kIgnoreIndex : n * 11 % 61);
    }
  }
  LossSums forward(float grad_scale, int64_t checked = 0) {
    LayerContext ctx = context();
    ctx.fp8 = &counters;
    return model.forward(ctx, batch.micro_batch(), saved, grad_scale, checked);
  }
  int head_weight() const {
    for (size_t p = 0; p < model.params().specs().size(); ++p)
      if (model.params().specs()[p].role == ParamRole::kHead) return static_cast<int>(p);
    return -1;
  }
  Doubles head_gradient() { return to_doubles(store.grad(head_weight())); }

  Activations activations{model, kB, kT};
  Transformer::Saved& saved = activations.saved;
  Fp8State counters{model.fp8_tensors(), 0, 0};
  SmallBatch batch{.B = kB, .T = kT, .tokens = {}, .targets = {}, .starts = {}};
  std::vector<int32_t>& targets = batch.targets;
};

double relative_distance(const Doubles& a, const Doubles& b) {
  Doubles difference;
  for (size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
  return std::sqrt(dot(difference, difference) / dot(b, b));
}

TEST(LossHeadChunk, ChunksOfADeviceAreWholeTilesOfAlmostEqualSize) {
  ModelConfig model = tiny_model();
  model.vocab = 50304;
  const LossHead head(model, {}, DType::bf16, 0);
  EXPECT_EQ(head.chunk(65536, Device::kCuda), 9472)
      << "7 chunks of 37 x 256 tokens; 2 GiB of logits hold 41 x 256";
  EXPECT_EQ(head.chunk(10496, Device::kCuda), 10496) << "all of them";
  EXPECT_EQ(head.chunk(10752, Device::kCuda), 5376) << "two halves";
  EXPECT_EQ(head.chunk(100, Device::kCuda), 100);
  const LossHead half(model, {.loss_dtype = LossDtype::kBf16Logits}, DType::bf16, 0);
  EXPECT_EQ(half.chunk(65536, Device::kCuda), 16384) << "4 chunks; 2 GiB of bf16 logits hold 83 x 256";
  EXPECT_EQ(half.chunk(65536, Device::kCuda, false), 9472) << "evaluation has f32 logits";
}

TEST(LossHead, EveryKindAndPrecisionMatchesThePlainHead) {
  const float grad_scale = 1.0f / 32;
  for (DType compute : {DType::f32, DType::bf16, DType::f16}) {
    Rig plain({}, compute);
    const LossSums want = plain.forward(grad_scale);
    const Doubles want_d = to_doubles(plain.saved.in_training.d), want_dw = plain.head_gradient();
    for (HeadKind kind : {HeadKind::kDense, HeadKind::kChunked, HeadKind::kRecompute})
      for (HeadPrecision precision :
           {HeadPrecision::kCompute, HeadPrecision::kF32, HeadPrecision::kBf16, HeadPrecision::kFp8})
        for (HeadAccumulation accumulation : {HeadAccumulation::kF32, HeadAccumulation::kKahan}) {
          SCOPED_TRACE(fmt::format("{} kind {} precision {}", name(compute), static_cast<int>(kind),
                                   static_cast<int>(precision)));
          Rig rig({.kind = kind, .precision = precision, .accumulation = accumulation}, compute);
          const LossSums got = rig.forward(grad_scale);
          // The tolerance is one rounding of a value to the coarser format; averaged over the
          // tokens the error is far smaller.
          const bool is_exact = precision == HeadPrecision::kCompute || precision == HeadPrecision::kF32;
          const double rounding = is_exact                           ? unit_roundoff(compute)
                                  : precision == HeadPrecision::kFp8 ? 0x1p-3
                                                                     : unit_roundoff(DType::bf16);
          EXPECT_NEAR(got.loss, want.loss, std::max(2 * rounding, 1e-5) * want.loss);
          EXPECT_EQ(got.counted, want.counted);
          EXPECT_LT(relative_distance(to_doubles(rig.saved.in_training.d), want_d), 2 * rounding + 1e-6);
          EXPECT_LT(relative_distance(rig.head_gradient(), want_dw), 2 * rounding + 1e-6);
        }
  }
}

TEST(LossHead, EvaluationUsesNeitherFp8NorExtraLossTerms) {
  Rig plain({.precision = HeadPrecision::kBf16}, DType::bf16);
  Rig fp8({.precision = HeadPrecision::kFp8, .z_loss = 0.1, .label_smoothing = 0.2}, DType::bf16);
  EXPECT_EQ(fp8.forward(0).loss, plain.forward(0).loss);
  EXPECT_EQ(fp8.counters.total().elements, 0);
  EXPECT_NE(fp8.forward(1).loss, plain.forward(1).loss);
}

TEST(LossHead, CountsTheValuesThatItsCastsSaturate) {
  Rig rig({.precision = HeadPrecision::kFp8, .fp8_w_scale = 4096}, DType::bf16);
  rig.forward(1.0f / 32);
  ASSERT_EQ(rig.counters.entries().size(), 3u);
  const Fp8Stats &x = rig.counters[0], &w = rig.counters[1], &d = rig.counters[2];
  EXPECT_EQ(rig.counters.entries()[1].name, "head.w");
  EXPECT_EQ(x.elements, 32 * 32);
  EXPECT_EQ(w.elements, 64 * 32);
  EXPECT_EQ(d.elements, 32 * 64);
  EXPECT_EQ(x.saturated, 0);
  EXPECT_EQ(d.saturated, 0);
  // 0.3 N(0, 1) times 4096 exceeds 464 for all but 30 % of the weights; padding is zero.
  int64_t beyond = 0;
  for (double v : to_doubles(rig.store.master(rig.head_weight())))
    beyond += f8e4m3::saturates(static_cast<float>(v) * 4096.0f);
  EXPECT_EQ(w.saturated, beyond);
  EXPECT_GT(beyond, 1000);
  rig.counters.begin_step();
  EXPECT_EQ(rig.counters.total().elements, 0);
}

// The gradients of the logits are at most 1 / N each. The derived scale leaves 2.8 octaves of headroom at
// every N; a fixed scale does so only at the N that it was chosen for.
TEST(LossHead, Fp8GradientScaleFollowsTheNumberOfTokens) {
  const auto scale = [](double tokens) {
    return fp8_head_gradient_scale({.grad_scale = static_cast<float>(1 / tokens)});
  };
  EXPECT_EQ(scale(65536), 0x1p29f);
  EXPECT_EQ(scale(8192), 0x1p26f);
  EXPECT_EQ(scale(1), 0x1p13f) << "the sum";
  CrossEntropyConfig steep{.cap = LogitCap::kSigmoid, .cap_a = 60, .cap_b = 0, .cap_c = 7.5f};
  EXPECT_EQ(fp8_head_gradient_scale(steep), 0x1p12f) << "a slope of 2";
  for (double tokens : {2048.0, 4096.0, 8192.0, 65536.0}) {
    const float largest = static_cast<float>(1 / tokens);
    EXPECT_FALSE(f8e5m2::saturates(largest * scale(tokens)));
    EXPECT_EQ(f8e5m2::saturates(largest * 0x1p29f), tokens < 9363) << tokens;
  }
}

// The gradient of the logits is rounded once, from f32 to e5m2. With bf16 in between, it could end at another
// value: 1 + 1/8 + 2^-11 is nearer to 1.25, but rounds to the tie 1.125 in bf16 and then down to 1.
TEST(LossHead, Fp8GradientIsRoundedOnce) {
  const float value = 1.125f + 0x1p-11f;
  EXPECT_EQ(static_cast<float>(f8e5m2(value)), 1.25f);
  EXPECT_EQ(static_cast<float>(f8e5m2(static_cast<float>(bf16(value)))), 1.0f);
  Stream stream;
  Buffer d(DType::f32, {1}), rounded(DType::bf16, {1});
  assign(d, {static_cast<double>(value)});
  Fp8Stats stats;
  round_to_fp8(rounded, d, DType::f8e5m2, 1, stats, stream);
  EXPECT_EQ(to_doubles(rounded)[0], 1.25);
}

TEST(LossHead, CheckRecomputesTheLossOfSomeTokens) {
  for (DType compute : {DType::f32, DType::bf16, DType::f16}) {
    HeadConfig head{.z_loss = 0.01, .label_smoothing = 0.1};
    head.raw_ce_tokens = 1000;  // all 32 tokens
    Rig rig(head, compute);
    const LossSums sums = rig.forward(1, head.raw_ce_tokens);
    EXPECT_EQ(sums.raw.tokens, sums.counted);
    const double counted = static_cast<double>(sums.counted);
    EXPECT_NEAR(sums.raw.trained, sums.loss / counted, 1e-9);
    EXPECT_NEAR(sums.raw.objective, sums.raw.trained, 4 * unit_roundoff(compute) + 1e-5);
    Rig plain({}, compute);
    EXPECT_NEAR(sums.raw.ce, plain.forward(0).loss / counted, 4 * unit_roundoff(compute) + 1e-5);
    EXPECT_GT(sums.raw.objective, sums.raw.ce);
  }
}

TEST(LossHead, CheckDetectsWeightsThatDifferFromTheMasters) {
  Rig rig({}, DType::bf16);
  const Tensor w = rig.store.weight(rig.head_weight());
  for (int64_t i = 0; i < w.elements(); ++i)
    w.as<bf16>()[i] = bf16(0.5f * static_cast<float>(w.as<bf16>()[i]));
  const RawLoss raw = rig.forward(1, 16).raw;
  EXPECT_GT(std::abs(raw.trained - raw.objective), 0.1);
}

// The mean is over all counted tokens; with uneven micro-batches that is not the mean of their means.
TEST(LossHead, GradientsOfUnevenMicroBatchesAddUpToTheMeanOverAllTokens) {
  Rig together({}, DType::f32), apart({}, DType::f32);
  const float grad_scale = 0.01f;
  together.forward(grad_scale);
  const Doubles first = together.head_gradient();
  std::vector<int32_t> all = apart.targets;
  for (const bool is_first : {true, false}) {
    for (size_t n = 0; n < all.size(); ++n) apart.targets[n] = (n < 5) == is_first ? all[n] : kIgnoreIndex;
    apart.forward(grad_scale);
  }
  const Doubles second = apart.head_gradient();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(second[i], first[i], 1e-6);
}

}  // namespace
}  // namespace ingot::test
