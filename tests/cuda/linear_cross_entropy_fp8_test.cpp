// Compares the FP8 head on a device: the codes of its gradient with the reference, and the whole op with
// the CPU's emulation, which multiplies the same codes exactly.
#include <array>
#include <optional>

#include "ingot/core/float8.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/linear_cross_entropy.h"
#include "ingot/ops/loss/cross_entropy_fp8.h"
#include "ingot/ops/loss/cross_entropy_tile.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/cross_entropy.h"

namespace ingot::test {
namespace {

constexpr int64_t kN = 48, kC = 32, kV = 75, kVp = 80;

std::vector<int32_t> some_targets() {
  std::vector<int32_t> targets;
  for (int64_t n = 0; n < kN; ++n)
    targets.push_back(n % 7 == 1 ? kIgnoreIndex : static_cast<int32_t>((n * 13 + 5) % kV));
  return targets;
}

// The Fp8Places of x, w and the gradient of the logits, all zero at first.
class Places : protected OnCuda {
 public:
  Places() {
    Buffer zero(DType::f32, {4 * 3}), counts(DType::u32, {2 * 3});
    std::memset(zero.tensor().data, 0, zero.tensor().bytes());
    std::memset(counts.tensor().data, 0, counts.tensor().bytes());
    numbers_.emplace(zero, stream);
    counts_.emplace(counts, stream);
  }
  std::array<Fp8Place, 3> all() const {
    std::array<Fp8Place, 3> places;
    for (int64_t i = 0; i < 3; ++i) {
      const auto number = [&](int64_t k) { return numbers_->tensor().rows(4 * i + k, 4 * i + k + 1); };
      places[static_cast<size_t>(i)] = {number(0), number(1), number(2), number(3),
                                        counts_->tensor().rows(2 * i, 2 * i + 2)};
    }
    return places;
  }
  // Returns the device's statistics of tensor i.
  Fp8Stats counted(int64_t i) const {
    const Buffer numbers = numbers_->to_host(), counts = counts_->to_host();
    return {.elements = 0,
            .saturated = counts.tensor().as<uint32_t>()[2 * i],
            .underflowed = counts.tensor().as<uint32_t>()[2 * i + 1],
            .amax = numbers.tensor().as<float>()[4 * i + 3]};
  }

 private:
  std::optional<OnDevice> numbers_, counts_;
};

// Each code is the reference's gradient times the scale, rounded once.
TEST(CudaCrossEntropyFp8, CodesAreTheGradientRoundedOnce) {
  Stream stream = cuda::make_stream();
  const CrossEntropyConfig config{
      .vocab = kV, .cap = LogitCap::kTanh, .cap_a = 15, .label_smoothing = 0.1f, .z_loss = 1e-3f};
  const Buffer logits = random_tensor(DType::f32, {kN, kVp}, 1, 4.0);
  const std::vector<int32_t> targets = some_targets();
  const OnDevice x(logits, stream), targets_there(integers(targets), stream);
  const OnDevice rows(DType::u8, {kN, static_cast<int64_t>(sizeof(TileRow))}, stream);
  const OnDevice losses(DType::f32, {kN}, stream), lse(DType::f32, {kN}, stream);
  const OnDevice d(DType::f8e5m2, {kN, kVp}, stream), transposed(DType::f8e5m2, {kVp, kN}, stream);
  cross_entropy_begin(rows, stream);
  cross_entropy_fold(rows, {.logits = x, .targets = targets_there}, config, stream);
  cross_entropy_finish(losses, {}, lse, rows, targets_there, config, stream);
  const Places places;
  const Fp8Place place = places.all()[2];
  const float scale = fp8_head_gradient_scale(config);
  cuda::put_fp8_scale(place.scale, place.inverse, scale, stream);
  const LogitTile tile{x, 0, lse, targets_there};
  cuda::cross_entropy_fp8_gradient(d, transposed, tile, config, place, stream);
  cuda::raise_gradient_amax(place.fresh, tile, config, stream);

  const Doubles want = cross_entropy_gradient_reference(to_doubles(logits), targets, config);
  const Buffer codes = d.to_host(), turned_codes = transposed.to_host();
  double largest = 0;
  for (int64_t n = 0; n < kN; ++n)
    for (int64_t v = 0; v < kVp; ++v) {
      const f8e5m2 code = codes.tensor().as<f8e5m2>()[n * kVp + v];
      const double exact = want[static_cast<size_t>(n * kVp + v)];
      largest = std::max(largest, std::abs(exact));
      const double got = static_cast<double>(static_cast<float>(code)) / static_cast<double>(scale);
      EXPECT_NEAR(got, exact, 0.125 * std::abs(exact) + 64 * unit_roundoff(DType::f32)) << n << ", " << v;
      EXPECT_EQ(code.bits, turned_codes.tensor().as<f8e5m2>()[v * kN + n].bits) << n << ", " << v;
    }
  EXPECT_NEAR(places.counted(2).amax, largest, 1e-5);
  EXPECT_EQ(places.counted(2).saturated, 0);
  EXPECT_GT(places.counted(2).amax, 0.5);
}

struct LinearCrossEntropyFp8Case {
  const char* name;
  LinearCrossEntropyConfig config;
  DType x = DType::bf16;
};

// The results of one call of the op.
struct Result {
  Buffer losses{DType::f32, {kN}}, correct{DType::u8, {kN}}, dx{DType::f32, {1}}, dw{DType::f32, {kVp, kC}};
  std::array<Fp8Stats, 3> stats;
};

class CudaFp8Head : public ::testing::TestWithParam<LinearCrossEntropyFp8Case> {
 protected:
  LinearCrossEntropyConfig config(Device device) const {
    LinearCrossEntropyConfig c = GetParam().config;
    c.precision = HeadPrecision::kFp8;
    c.loss.vocab = kV;
    c.loss.grad_scale = 1.0f / kN;
    c.device = device;
    return c;
  }
  Buffer x = random_tensor(GetParam().x, {kN, kC}, 1), w = random_tensor(DType::f32, {kVp, kC}, 2, 0.3);
  Buffer dw_before = random_tensor(DType::f32, {kVp, kC}, 3, 0.01);
  std::vector<int32_t> targets = some_targets();

  Result on_host() {
    Result r;
    Stream stream;
    const LinearCrossEntropyConfig c = config(Device::kCpu);
    Arena plan("plan");
    make_linear_cross_entropy_scratch(plan, kN, kC, kVp, c, true);
    Arena arena("scratch", plan.peak_bytes());
    r.dx = Buffer(GetParam().x, {kN, kC});
    std::memcpy(r.dw.tensor().data, dw_before.tensor().data, dw_before.tensor().bytes());
    const auto report =
        linear_cross_entropy({.losses = r.losses, .is_correct = r.correct, .dx = r.dx, .dw = r.dw},
                             {.x = x, .w = w, .targets = Tensor(targets.data(), DType::i32, {kN})}, c,
                             make_linear_cross_entropy_scratch(arena, kN, kC, kVp, c, true), stream);
    r.stats = {report.fp8.x, report.fp8.w, report.fp8.d_logits};
    return r;
  }
  Result on_device(bool has_grads) {
    Result r;
    Stream stream = cuda::make_stream();
    const LinearCrossEntropyConfig c = config(Device::kCuda);
    Arena plan("plan", Memory::kDevice);
    make_linear_cross_entropy_scratch(plan, kN, kC, kVp, c, has_grads);
    Arena arena("scratch", plan.peak_bytes(), Memory::kDevice);
    LinearCrossEntropyScratch scratch = make_linear_cross_entropy_scratch(arena, kN, kC, kVp, c, has_grads);
    const Places places;
    scratch.fp8 = places.all();
    const OnDevice losses(DType::f32, {kN}, stream), correct(DType::u8, {kN}, stream);
    const OnDevice dx(GetParam().x, {kN, kC}, stream), dw(dw_before, stream);
    const OnDevice x_there(x, stream), w_there(w, stream), targets_there(integers(targets), stream);
    const auto report =
        linear_cross_entropy({.losses = losses,
                              .is_correct = correct,
                              .dx = has_grads ? dx.tensor() : Tensor{},
                              .dw = has_grads ? dw.tensor() : Tensor{}},
                             {.x = x_there, .w = w_there, .targets = targets_there}, c, scratch, stream);
    r.losses = losses.to_host();
    r.correct = correct.to_host();
    if (has_grads) r.dx = dx.to_host();
    r.dw = dw.to_host();
    r.stats = {report.fp8.x, report.fp8.w, report.fp8.d_logits};
    for (int64_t i = 0; i < 3; ++i) r.stats[static_cast<size_t>(i)].add(places.counted(i));
    return r;
  }
};

// The codes are equal except where a gradient lies at the border of two of them.
TEST_P(CudaFp8Head, EqualsTheCpu) {
  const Result want = on_host(), got = on_device(true);
  expect_close(got.losses, to_doubles(want.losses), 64 * unit_roundoff(DType::f32), "loss");
  expect_same_bits(got.correct, want.correct, "correct");
  const double rounding = 2 * unit_roundoff(GetParam().x) + 64 * unit_roundoff(DType::f32);
  expect_close(got.dx, to_doubles(want.dx), rounding, "dx", 1.0 / kN);
  expect_close(got.dw, to_doubles(want.dw), 64 * unit_roundoff(DType::f32), "dw", 1.0 / kN);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got.stats[i].elements, want.stats[i].elements) << i;
    EXPECT_EQ(got.stats[i].saturated, want.stats[i].saturated) << i;
    EXPECT_EQ(got.stats[i].underflowed, want.stats[i].underflowed) << i;
    EXPECT_NEAR(got.stats[i].amax, want.stats[i].amax, 1e-5 * static_cast<double>(want.stats[i].amax)) << i;
  }
}

TEST_P(CudaFp8Head, WithoutGradientsGivesTheSameLosses) {
  const Result with = on_device(true), without = on_device(false);
  expect_same_bits(without.losses, with.losses, "losses");
  expect_same_bits(without.dw, dw_before, "dw");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CudaFp8Head,
    ::testing::Values(
        LinearCrossEntropyFp8Case{"dense", {.loss = {}, .kind = HeadKind::kDense}},
        LinearCrossEntropyFp8Case{"chunked", {.loss = {}, .kind = HeadKind::kChunked, .chunk_tokens = 32}},
        LinearCrossEntropyFp8Case{
            "in_f32", {.loss = {}, .kind = HeadKind::kChunked, .chunk_tokens = 16}, DType::f32},
        LinearCrossEntropyFp8Case{
            "recompute",
            {.loss = {.cap = LogitCap::kSigmoid, .cap_a = 30, .cap_b = 0, .cap_c = 7.5f},
             .kind = HeadKind::kRecompute,
             .chunk_tokens = 32,
             .tile_columns = 32}},
        LinearCrossEntropyFp8Case{"recompute_current",
                                  {.loss = {},
                                   .kind = HeadKind::kRecompute,
                                   .chunk_tokens = 32,
                                   .tile_columns = 48,
                                   .fp8_scaling = Fp8HeadScaling::kCurrent},
                                  DType::f32},
        LinearCrossEntropyFp8Case{"kahan",
                                  {.loss = {.label_smoothing = 0.1f, .z_loss = 1e-3f},
                                   .kind = HeadKind::kChunked,
                                   .accumulation = HeadAccumulation::kKahan,
                                   .chunk_tokens = 32,
                                   .tile_columns = 32}},
        LinearCrossEntropyFp8Case{"current",
                                  {.loss = {.cap = LogitCap::kTanh, .cap_a = 15},
                                   .kind = HeadKind::kChunked,
                                   .chunk_tokens = 32,
                                   .fp8_scaling = Fp8HeadScaling::kCurrent}},
        LinearCrossEntropyFp8Case{
            "saturating", {.loss = {}, .kind = HeadKind::kDense, .fp8_x_scale = 512, .fp8_w_scale = 4096}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::test
