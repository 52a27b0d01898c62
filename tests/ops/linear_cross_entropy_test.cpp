// Tests every kind of head in every precision, with every cap, z-loss, label smoothing and accumulation,
// against a loss in double and its central differences; FP8 against the interval that its rounding allows.
#include "ingot/ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include "ingot/core/float8.h"
#include "tests/reference/cross_entropy.h"

namespace ingot::test {
namespace {

constexpr HeadKind kKinds[] = {HeadKind::kDense, HeadKind::kChunked, HeadKind::kRecompute};
constexpr HeadPrecision kPrecisions[] = {HeadPrecision::kF32, HeadPrecision::kBf16, HeadPrecision::kF16,
                                         HeadPrecision::kFp8};
constexpr LogitCap kCaps[] = {LogitCap::kNone, LogitCap::kTanh, LogitCap::kSigmoid};

// Returns the dtype of the operands; for FP8, that of the values before they are rounded.
DType dtype_of(HeadPrecision precision) {
  return precision == HeadPrecision::kF32   ? DType::f32
         : precision == HeadPrecision::kF16 ? DType::f16
                                            : DType::bf16;
}

// Returns x (N, C) · w (Vp, C)ᵀ in double.
Doubles logits_reference(const Doubles& x, const Doubles& w, int64_t C) {
  const size_t c = static_cast<size_t>(C), N = x.size() / c, Vp = w.size() / c;
  Doubles z(N * Vp);
  for (size_t n = 0; n < N; ++n)
    for (size_t v = 0; v < Vp; ++v)
      for (size_t i = 0; i < c; ++i) z[n * Vp + v] += x[n * c + i] * w[v * c + i];
  return z;
}

// One head with its operands; run() calls the op.
struct Head {
  int64_t N = 5, C = 6, V = 13, Vp = 16;
  LinearCrossEntropyConfig config;
  Buffer x{DType::f32, {1}}, w{DType::f32, {1}}, dx{DType::f32, {1}}, dw{DType::f32, {1}};
  Buffer losses{DType::f32, {1}};
  std::vector<int32_t> targets;
  std::vector<uint8_t> correct;
  Doubles dw_before;
  bool adds_dw = true;
  LinearCrossEntropyReport report;
  Stream stream;

  // Fills the operands. w_scale sets how far apart the logits lie.
  void make(DType x_dtype, DType w_dtype, DType dx_dtype, double w_scale) {
    x = random_tensor(x_dtype, {N, C}, 1);
    w = random_tensor(w_dtype, {Vp, C}, 2, w_scale);
    dx = Buffer(dx_dtype, {N, C});
    dw = random_tensor(DType::f32, {Vp, C}, 3);
    losses = Buffer(DType::f32, {N});
    dw_before = to_doubles(dw);
    correct.assign(static_cast<size_t>(N), uint8_t{9});
    for (int64_t n = 0; n < N; ++n)
      targets.push_back(n % 4 == 1 ? kIgnoreIndex : static_cast<int32_t>((5 * n + 3) % V));
  }
  void make_for(HeadPrecision precision, double w_scale) {
    const DType dtype = dtype_of(precision);
    make(dtype, precision == HeadPrecision::kFp8 ? DType::f32 : dtype, dtype, w_scale);
    config.precision = precision;
  }
  void run(bool has_grads = true) {
    config.loss.vocab = V;
    Arena plan("plan");
    make_linear_cross_entropy_scratch(plan, N, C, Vp, config, has_grads);
    Arena arena("scratch", plan.peak_bytes());
    const LinearCrossEntropyScratch scratch =
        make_linear_cross_entropy_scratch(arena, N, C, Vp, config, has_grads);
    report = linear_cross_entropy({.losses = losses,
                                   .is_correct = Tensor(correct.data(), DType::u8, {N}),
                                   .dx = has_grads ? dx.tensor() : Tensor{},
                                   .dw = has_grads ? dw.tensor() : Tensor{},
                                   .adds_dw = adds_dw},
                                  {.x = x, .w = w, .targets = Tensor(targets.data(), DType::i32, {N})},
                                  config, scratch, stream);
  }

  // Returns the values that the products use, which are rounded ones in FP8.
  Doubles seen(const Buffer& t, float fixed_scale) const {
    Doubles values = to_doubles(t);
    if (config.precision != HeadPrecision::kFp8) return values;
    double amax = 0;
    for (double v : values) amax = std::max(amax, std::abs(v));
    const float scale =
        config.fp8_scaling == Fp8HeadScaling::kStatic ? fixed_scale : static_cast<float>(448 / amax);
    for (double& v : values)
      v = static_cast<double>(static_cast<float>(f8e4m3(static_cast<float>(v) * scale))) /
          static_cast<double>(scale);
    return values;
  }
  Doubles seen_x() const { return seen(x, config.fp8_x_scale); }
  Doubles seen_w() const { return seen(w, config.fp8_w_scale); }
  double objective(const Doubles& xs, const Doubles& ws) const {
    double total = 0;
    for (double l : cross_entropy_reference(logits_reference(xs, ws, C), targets, config.loss)) total += l;
    return total * static_cast<double>(config.loss.grad_scale);
  }
};

void expect_losses_and_top1(const Head& head, const Doubles& xs, const Doubles& ws) {
  const Doubles logits = logits_reference(xs, ws, head.C);
  expect_close(head.losses, cross_entropy_reference(logits, head.targets, head.config.loss), 2e-5, "loss");
  for (size_t n = 0; n < head.targets.size(); ++n) {
    const auto row = logits.begin() + static_cast<int64_t>(n) * head.Vp;
    EXPECT_EQ(head.correct[n], head.targets[n] == std::max_element(row, row + head.V) - row) << n;
  }
}

// Checks against central differences of the loss. The gradient of the logits and dx are
// rounded to the dtype once each.
void expect_gradients(const Head& head, const Doubles& xs, const Doubles& ws) {
  const bool is_f32 = head.config.precision == HeadPrecision::kF32;
  const double tolerance = is_f32 ? 1e-6 : 4 * unit_roundoff(dtype_of(head.config.precision));
  const Doubles dx = central_differences([&](const Doubles& v) { return head.objective(v, ws); }, xs);
  Doubles dw = central_differences([&](const Doubles& v) { return head.objective(xs, v); }, ws);
  for (size_t i = 0; i < dw.size(); ++i) dw[i] += head.dw_before[i];
  expect_close(head.dx, dx, tolerance, "dx", 1.0);
  expect_close(head.dw, dw, tolerance, "dw", 1.0);
}

// The e5m2 code of each logit's gradient lies between those of slightly smaller and slightly larger
// values, so dx and dw lie between the sums of the products' bounds.
struct Interval {
  Doubles low, high;
};
Interval e5m2_bounds(const Head& head, const Doubles& logits) {
  const Doubles u = cross_entropy_gradient_reference(logits, head.targets, head.config.loss);
  double amax = 0;
  for (double v : u) amax = std::max(amax, std::abs(v));
  const bool is_static = head.config.fp8_scaling == Fp8HeadScaling::kStatic;
  const float grad_scale = head.config.loss.grad_scale;
  const float scale =
      is_static ? fp8_head_gradient_scale(head.config.loss) * grad_scale : static_cast<float>(57344 / amax);
  Interval bounds;
  for (double v : u) {
    const auto rounded = [&](double factor) {
      const float scaled = static_cast<float>(v * factor) * scale;
      return static_cast<double>(static_cast<float>(f8e5m2(scaled))) *
             static_cast<double>(grad_scale / scale);
    };
    // Current scaling uses each chunk's own amax; rounding moves a value by an eighth
    // at most, whatever the scale.
    const double slack = is_static ? 1e-4 : 0.3;
    bounds.low.push_back(std::min(rounded(1 - slack), rounded(1 + slack)) - 1e-7);
    bounds.high.push_back(std::max(rounded(1 - slack), rounded(1 + slack)) + 1e-7);
  }
  return bounds;
}

void expect_inside(const Tensor& got, const Doubles& low, const Doubles& high, double rounding,
                   const char* what) {
  const Doubles values = to_doubles(got);
  for (size_t i = 0; i < values.size(); ++i) {
    const double slack = rounding * (std::abs(low[i]) + std::abs(high[i])) + 1e-6;
    ASSERT_GE(values[i], low[i] - slack) << what << " " << i;
    ASSERT_LE(values[i], high[i] + slack) << what << " " << i;
  }
}

void expect_fp8_gradients(const Head& head, const Doubles& xs, const Doubles& ws) {
  const Interval d = e5m2_bounds(head, logits_reference(xs, ws, head.C));
  const size_t N = static_cast<size_t>(head.N), C = static_cast<size_t>(head.C),
               Vp = static_cast<size_t>(head.Vp);
  Interval dx{Doubles(N * C), Doubles(N * C)}, dw{head.dw_before, head.dw_before};
  const auto add = [](Interval& sum, size_t at, double low, double high, double factor) {
    sum.low[at] += std::min(low * factor, high * factor);
    sum.high[at] += std::max(low * factor, high * factor);
  };
  for (size_t n = 0; n < N; ++n)
    for (size_t v = 0; v < Vp; ++v)
      for (size_t c = 0; c < C; ++c) {
        const double low = d.low[n * Vp + v], high = d.high[n * Vp + v];
        add(dx, n * C + c, low, high, ws[v * C + c]);
        add(dw, v * C + c, low, high, xs[n * C + c]);
      }
  expect_inside(head.dx, dx.low, dx.high, unit_roundoff(head.dx.tensor().dtype), "dx");
  expect_inside(head.dw, dw.low, dw.high, unit_roundoff(DType::f32), "dw");
}

struct LinearCrossEntropyCase {
  HeadKind kind;
  HeadPrecision precision;
  LogitCap cap;
  bool has_z_loss, is_smoothed, is_kahan;
  int number;
};

std::vector<LinearCrossEntropyCase> all_cases() {
  std::vector<LinearCrossEntropyCase> cases;
  for (HeadKind kind : kKinds)
    for (HeadPrecision precision : kPrecisions)
      for (LogitCap cap : kCaps)
        for (int bits = 0; bits < 8; ++bits)
          cases.push_back({kind, precision, cap, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0,
                           static_cast<int>(cases.size())});
  return cases;
}

Head head_of(const LinearCrossEntropyCase& c) {
  Head head;
  const int64_t chunks[] = {1, 2, 5, 40}, tiles[] = {4, 5, 16, 100};
  head.config.kind = c.kind;
  head.config.chunk_tokens = chunks[c.number % 4];
  head.config.tile_columns = tiles[c.number / 4 % 4];
  head.config.logit_tokens = 1 + c.number % 3;
  head.config.accumulation = c.is_kahan ? HeadAccumulation::kKahan : HeadAccumulation::kF32;
  head.config.fp8_scaling = c.number % 3 == 2 ? Fp8HeadScaling::kCurrent : Fp8HeadScaling::kStatic;
  CrossEntropyConfig& loss = head.config.loss;
  loss.cap = c.cap;
  if (c.cap != LogitCap::kNone) loss.cap_a = c.cap == LogitCap::kTanh ? 15.0f : 23.0f;
  if (c.cap == LogitCap::kSigmoid) loss.cap_b = 5, loss.cap_c = 7.5f;
  loss.grad_scale = 0.25f;
  loss.z_loss = c.has_z_loss ? 0.01f : 0.0f;
  loss.label_smoothing = c.is_smoothed ? 0.1f : 0.0f;
  head.make_for(c.precision, 0.5);
  return head;
}

// A gradient of NaN that is overwritten becomes what is added to zero.
template <typename MakeHead>
void expect_overwritten(const MakeHead& make) {
  Head sum = make(), overwritten = make();
  const auto n = static_cast<size_t>(sum.Vp * sum.C);
  assign(sum.dw, Doubles(n, 0));
  assign(overwritten.dw, Doubles(n, NAN));
  overwritten.adds_dw = false;
  sum.run();
  overwritten.run();
  EXPECT_EQ(to_doubles(overwritten.dw), to_doubles(sum.dw));
}

TEST(LinearCrossEntropy, EveryCombinationMatchesTheReference) {
  for (const LinearCrossEntropyCase& c : all_cases()) {
    SCOPED_TRACE(fmt::format("kind {} precision {} cap {} z {} smoothing {} kahan {}",
                             static_cast<int>(c.kind), static_cast<int>(c.precision), static_cast<int>(c.cap),
                             c.has_z_loss, c.is_smoothed, c.is_kahan));
    Head head = head_of(c);
    head.run();
    const Doubles xs = head.seen_x(), ws = head.seen_w();
    expect_losses_and_top1(head, xs, ws);
    if (c.precision == HeadPrecision::kFp8)
      expect_fp8_gradients(head, xs, ws);
    else
      expect_gradients(head, xs, ws);
    const Doubles with_gradients = to_doubles(head.losses);
    head.run(false);
    EXPECT_EQ(to_doubles(head.losses), with_gradients) << "without gradients";
    expect_overwritten([&] { return head_of(c); });
    if (::testing::Test::HasFailure()) return;
  }
}

// The sizes fill registers and several tiles; the kinds differ only in the order of sums.
TEST(LinearCrossEntropy, KindsAgreeAtLargerSizes) {
  for (HeadPrecision precision : kPrecisions) {
    std::vector<Doubles> losses, dx, dw;
    for (HeadKind kind : kKinds) {
      Head head;
      head.N = 70, head.C = 48, head.V = 333, head.Vp = 384;
      head.config.kind = kind;
      head.config.chunk_tokens = 32;
      head.config.tile_columns = 100;
      head.config.logit_tokens = 9;
      head.config.loss.grad_scale = 1.0f / 70;
      head.config.loss.z_loss = 1e-3f;
      head.make_for(precision, 0.3);
      head.run();
      expect_losses_and_top1(head, head.seen_x(), head.seen_w());
      losses.push_back(to_doubles(head.losses));
      dx.push_back(to_doubles(head.dx));
      dw.push_back(to_doubles(head.dw));
    }
    // Some gradients round the other way; one step of e5m2 is a quarter of the value.
    const double step = precision == HeadPrecision::kFp8 ? 0.25 : unit_roundoff(dtype_of(precision));
    const double tolerance = precision == HeadPrecision::kF32 ? 1e-6 : 2 * step / 70;
    for (size_t k : {1, 2})
      for (size_t i = 0; i < dw[0].size(); ++i) {
        ASSERT_NEAR(dw[k][i], dw[0][i], tolerance + 1e-6) << k;
        if (i < dx[0].size()) {
          ASSERT_NEAR(dx[k][i], dx[0][i], tolerance + 1e-6) << k;
        }
        if (i < losses[0].size()) {
          ASSERT_NEAR(losses[k][i], losses[0][i], 1e-5) << k;
        }
      }
  }
}

TEST(LinearCrossEntropy, PaddedRowsGetNoProbabilityAndNoGradient) {
  for (HeadKind kind : kKinds)
    for (HeadPrecision precision : kPrecisions) {
      Head plain, poisoned;
      for (Head* head : {&plain, &poisoned}) {
        head->config.kind = kind;
        head->config.chunk_tokens = 3;
        head->config.tile_columns = 4;  // the last tile has one column that is not padding
        head->make_for(precision, 0.5);
      }
      Doubles w = to_doubles(poisoned.w);
      for (size_t i = static_cast<size_t>(poisoned.V * poisoned.C); i < w.size(); ++i) w[i] = 12;
      assign(poisoned.w, w);
      plain.run();
      poisoned.run();
      EXPECT_EQ(to_doubles(poisoned.losses), to_doubles(plain.losses));
      EXPECT_EQ(to_doubles(poisoned.dx), to_doubles(plain.dx));
      const Doubles dw = to_doubles(poisoned.dw);
      for (size_t i = static_cast<size_t>(poisoned.V * poisoned.C); i < dw.size(); ++i)
        EXPECT_EQ(dw[i], poisoned.dw_before[i]);
    }
}

TEST(LinearCrossEntropy, ZeroHeadGivesTheUniformLossAndNoInputGradient) {
  for (HeadKind kind : kKinds)
    for (HeadPrecision precision : kPrecisions) {
      Head head;
      head.config.kind = kind;
      head.config.loss.cap = LogitCap::kSigmoid;
      head.config.loss.cap_a = 30, head.config.loss.cap_c = 7.5f;
      head.make_for(precision, 0.0);
      head.run();
      for (size_t n = 0; n < head.targets.size(); ++n)
        EXPECT_NEAR(to_doubles(head.losses)[n], head.targets[n] < 0 ? 0 : std::log(13.0), 1e-5);
      EXPECT_EQ(to_doubles(head.dx), Doubles(static_cast<size_t>(head.N * head.C), 0.0));
      EXPECT_NE(to_doubles(head.dw), head.dw_before);
    }
}

TEST(LinearCrossEntropy, FilterSkipsOnlyTilesOfSmallGradients) {
  const auto make = [](float filter) {
    Head head;
    head.N = 12, head.V = head.Vp = 64;
    head.config.kind = HeadKind::kRecompute;
    head.config.chunk_tokens = 4;
    head.config.tile_columns = 8;
    head.config.filter = filter;
    head.make_for(HeadPrecision::kF32, 4.0);  // sharp: most probabilities are almost zero
    for (size_t n = 0; n < head.targets.size(); ++n) head.targets[n] = static_cast<int32_t>(n % 8);
    return head;
  };
  const auto run = [&](float filter) {
    Head head = make(filter);
    head.run();
    return head;
  };
  expect_overwritten([&] { return make(1e-3f); });
  const Head exact = run(0), same = run(1e-30f), filtered = run(1e-3f);
  EXPECT_EQ(exact.report.filtered_tiles, 0);
  EXPECT_EQ(exact.report.tiles, 3 * 8);
  EXPECT_EQ(to_doubles(exact.dx), to_doubles(same.dx));
  EXPECT_GT(filtered.report.filtered_tiles, 0);
  EXPECT_LT(filtered.report.filtered_tiles, filtered.report.tiles);
  EXPECT_EQ(to_doubles(filtered.losses), to_doubles(exact.losses));
  // At most 64 probabilities below 1e-3 are left out per row, times weights of up to 16.
  const Doubles a = to_doubles(exact.dx), b = to_doubles(filtered.dx);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 64 * 1e-3 * 16);
  EXPECT_NE(a, b);
}

TEST(LinearCrossEntropy, KahanSumKeepsTermsThatPlainAdditionLoses) {
  // Each chunk adds about 1 to a sum of 2^24, where f32 numbers are 2 apart, so
  // plain addition loses all of it.
  std::vector<double> moved;
  for (HeadAccumulation accumulation : {HeadAccumulation::kF32, HeadAccumulation::kKahan}) {
    Head head;
    head.N = 64, head.C = 1, head.V = head.Vp = 2;
    head.config.chunk_tokens = 1;
    head.config.accumulation = accumulation;
    head.make(DType::f32, DType::f32, DType::f32, 0.0);
    assign(head.x, Doubles(64, 1.9));
    head.targets.assign(64, 0);
    assign(head.dw, {-0x1p24, 0x1p24});
    head.run();  // d logits are -1/2 and 1/2
    moved.push_back(to_doubles(head.dw)[1] - 0x1p24);
  }
  EXPECT_EQ(moved[0], 0);
  EXPECT_NEAR(moved[1], 64 * 0.95, 2);
}

TEST(LinearCrossEntropy, IgnoredTokensHaveNeitherLossNorGradient) {
  for (HeadKind kind : kKinds) {
    Head head;
    head.config.kind = kind;
    head.make_for(HeadPrecision::kF32, 0.5);
    head.targets.assign(head.targets.size(), kIgnoreIndex);
    head.run();
    EXPECT_EQ(to_doubles(head.losses), Doubles(head.targets.size(), 0.0));
    EXPECT_EQ(to_doubles(head.dw), head.dw_before);
    EXPECT_EQ(to_doubles(head.dx), Doubles(static_cast<size_t>(head.N * head.C), 0.0));
  }
}

TEST(LinearCrossEntropy, ErrorsNameTheOperand) {
  Head head;
  head.make_for(HeadPrecision::kF32, 0.5);
  head.config.filter = 0.5f;
  EXPECT_THROW(head.run(), Error);
  head.config.filter = 0;
  head.config.precision = HeadPrecision::kBf16;
  EXPECT_THROW(head.run(), Error);
}

}  // namespace
}  // namespace ingot::test
