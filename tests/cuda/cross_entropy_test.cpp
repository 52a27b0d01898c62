#include "ingot/ops/cross_entropy.h"

#include "ingot/ops/loss/cross_entropy_tile.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/cross_entropy.h"

namespace ingot::test {
namespace {

struct CrossEntropyCase {
  const char* name;
  DType gradient;
  int64_t N, Vp;
  CrossEntropyConfig config;
};

std::string cross_entropy_case_name(const ::testing::TestParamInfo<CrossEntropyCase>& info) {
  return fmt::format("{}_{}_{}x{}", info.param.name, name(info.param.gradient), info.param.N, info.param.Vp);
}

class CudaCrossEntropy : public ::testing::TestWithParam<CrossEntropyCase>, protected OnCuda {
 protected:
  CrossEntropyCase c = GetParam();
  Buffer logits = random_tensor(DType::f32, {c.N, c.Vp}, 1, 4.0);
  std::vector<int32_t> targets = [this] {
    std::vector<int32_t> values;
    for (int64_t n = 0; n < c.N; ++n)
      values.push_back(n == 1 ? kIgnoreIndex : static_cast<int32_t>((n * 13 + 5) % c.config.vocab));
    return values;
  }();
  OnDevice logits_there = put(logits), targets_there = put(integers(targets));
  OnDevice losses = result(DType::f32, {c.N}), is_correct = result(DType::u8, {c.N});

  Doubles want_gradient() const {
    Doubles d = cross_entropy_gradient_reference(to_doubles(logits), targets, c.config);
    for (double& v : d) v *= static_cast<double>(c.config.grad_scale);
    return d;
  }
  // The error is that of f32 exponentials and pairwise sums of V of them, with capped logits up to 30.
  double tolerance() const { return 64 * unit_roundoff(DType::f32); }
};

TEST_P(CudaCrossEntropy, LossesAndGradientEqualTheReference) {
  const OnDevice d_logits = result(c.gradient, {c.N, c.Vp});
  cross_entropy(losses, is_correct, d_logits, logits_there, targets_there, c.config, stream);
  expect_close(losses.to_host(), cross_entropy_reference(to_doubles(logits), targets, c.config), tolerance(),
               "loss");
  const double scale = static_cast<double>(c.config.grad_scale) * static_cast<double>(max_slope(c.config));
  expect_close(d_logits.to_host(), want_gradient(), 2 * unit_roundoff(c.gradient) + tolerance(), "d_logits",
               scale);
  const Buffer correct = is_correct.to_host();
  const Doubles x = to_doubles(logits);
  for (int64_t n = 0; n < c.N; ++n) {
    const auto row = x.begin() + n * c.Vp;
    const auto top = std::max_element(row, row + c.config.vocab) - row;
    EXPECT_EQ(correct.tensor().as<uint8_t>()[n] != 0, top == targets[static_cast<size_t>(n)]) << n;
  }
}

// Tiles of a few columns each, as in a head that recomputes its logits.
TEST_P(CudaCrossEntropy, TilesEqualTheWhole) {
  const int64_t W = std::min<int64_t>(c.Vp, 24);
  const OnDevice rows = result(DType::u8, {c.N, static_cast<int64_t>(sizeof(TileRow))});
  const OnDevice lse = result(DType::f32, {c.N});
  const auto tile_of = [&](int64_t first, int64_t width) {
    Buffer tile(DType::f32, {c.N, width});
    for (int64_t n = 0; n < c.N; ++n)
      std::copy_n(logits.tensor().as<float>() + n * c.Vp + first, width,
                  tile.tensor().as<float>() + n * width);
    return tile;
  };
  cross_entropy_begin(rows, stream);
  for (int64_t v = 0; v < c.Vp; v += W) {
    const OnDevice tile = put(tile_of(v, std::min(W, c.Vp - v)));
    cross_entropy_fold(rows, {.logits = tile, .first = v, .targets = targets_there}, c.config, stream);
    synchronize(stream);
  }
  cross_entropy_finish(losses, is_correct, lse, rows, targets_there, c.config, stream);
  expect_close(losses.to_host(), cross_entropy_reference(to_doubles(logits), targets, c.config), tolerance(),
               "loss");
  const double scale = static_cast<double>(c.config.grad_scale) * static_cast<double>(max_slope(c.config));
  const Doubles want = want_gradient();
  for (int64_t v = 0; v < c.Vp; v += W) {
    const int64_t width = std::min(W, c.Vp - v);
    const OnDevice tile = put(tile_of(v, width)), d_tile = result(c.gradient, {c.N, width});
    cross_entropy_tile_gradient(d_tile, {.logits = tile, .first = v, .lse = lse, .targets = targets_there},
                                c.config, stream);
    Doubles part;
    for (int64_t n = 0; n < c.N; ++n)
      part.insert(part.end(), want.begin() + n * c.Vp + v, want.begin() + n * c.Vp + v + width);
    expect_close(d_tile.to_host(), part, 2 * unit_roundoff(c.gradient) + tolerance(), "d_tile", scale);
  }
}

// As when each of several ranks has some of the columns.
TEST_P(CudaCrossEntropy, MergedPartsEqualTheWhole) {
  constexpr int64_t kParts = 3;
  const int64_t W = (c.Vp + kParts - 1) / kParts;
  const OnDevice parts = result(DType::u8, {kParts, c.N, kTileRowBytes}),
                 rows = result(DType::u8, {c.N, kTileRowBytes}), lse = result(DType::f32, {c.N});
  for (int64_t p = 0; p < kParts; ++p) {
    const int64_t first = p * W, width = std::clamp<int64_t>(c.Vp - first, 0, W);
    const Tensor own = parts.tensor().rows(p, p + 1).reshape({c.N, kTileRowBytes});
    cross_entropy_begin(own, stream);
    if (width == 0) continue;
    Buffer host(DType::f32, {c.N, width});
    for (int64_t n = 0; n < c.N; ++n)
      std::copy_n(logits.tensor().as<float>() + n * c.Vp + first, width,
                  host.tensor().as<float>() + n * width);
    const OnDevice tile = put(host);
    cross_entropy_fold(own, {.logits = tile, .first = first, .targets = targets_there}, c.config, stream);
    synchronize(stream);
  }
  cross_entropy_merge(rows, parts, targets_there, W, stream);
  cross_entropy_finish(losses, is_correct, lse, rows, targets_there, c.config, stream);
  expect_close(losses.to_host(), cross_entropy_reference(to_doubles(logits), targets, c.config), tolerance(),
               "loss");
}

TEST_P(CudaCrossEntropy, TheGradientMayOverwriteTheLogits) {
  if (c.gradient != DType::f32) return;
  cross_entropy(losses, {}, logits_there, logits_there, targets_there, c.config, stream);
  const double scale = static_cast<double>(c.config.grad_scale) * static_cast<double>(max_slope(c.config));
  expect_close(logits_there.to_host(), want_gradient(), tolerance(), "d_logits", scale);
}

TEST_P(CudaCrossEntropy, WithoutGradientTheLogitsStay) {
  cross_entropy(losses, {}, {}, logits_there, targets_there, c.config, stream);
  expect_close(losses.to_host(), cross_entropy_reference(to_doubles(logits), targets, c.config), tolerance(),
               "loss");
  expect_same_bits(logits_there.to_host(), logits, "logits");
}

// With logits in bf16 the results are those of the rounded logits, whether or not the gradient overwrites
// them.
TEST_P(CudaCrossEntropy, LogitsInBf16EqualTheReferenceOfTheirRoundedValues) {
  if (c.gradient != DType::bf16) return;
  Buffer half(DType::bf16, {c.N, c.Vp});
  assign(half, to_doubles(logits));
  const Doubles x = to_doubles(half);
  const OnDevice there = put(half), apart = result(DType::bf16, {c.N, c.Vp});
  cross_entropy(losses, is_correct, apart, there, targets_there, c.config, stream);
  expect_same_bits(there.to_host(), half, "logits");
  const Buffer first = losses.to_host(), correct = is_correct.to_host(), d = apart.to_host();
  const double exponential =
      0x1p-18;  // __expf(x) is exact to 2 + 1.2 |x| ulp, and terms with |x| > 20 vanish
  expect_close(first, cross_entropy_reference(x, targets, c.config), tolerance() + exponential, "loss");
  Doubles want = cross_entropy_gradient_reference(x, targets, c.config);
  for (double& v : want) v *= static_cast<double>(c.config.grad_scale);
  const double scale = static_cast<double>(c.config.grad_scale) * static_cast<double>(max_slope(c.config));
  expect_close(d, want, 2 * unit_roundoff(DType::bf16) + tolerance(), "d_logits", scale);
  for (int64_t n = 0; n < c.N; ++n) {
    const auto row = x.begin() + n * c.Vp;
    const auto top = std::max_element(row, row + c.config.vocab) - row;
    EXPECT_EQ(correct.tensor().as<uint8_t>()[n] != 0, top == targets[static_cast<size_t>(n)]) << n;
  }
  cross_entropy(losses, is_correct, there, there, targets_there, c.config, stream);
  expect_same_bits(losses.to_host(), first, "loss in place");
  expect_same_bits(is_correct.to_host(), correct, "is_correct in place");
  expect_same_bits(there.to_host(), d, "gradient in place");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CudaCrossEntropy,
    ::testing::Values(
        CrossEntropyCase{"plain", DType::f32, 3, 33, {.vocab = 33}},
        CrossEntropyCase{"plain", DType::bf16, 3, 1, {.vocab = 1}},
        CrossEntropyCase{"half", DType::f16, 3, 40, {.vocab = 39, .grad_scale = 64}},
        CrossEntropyCase{"padded", DType::f32, 4, 5000, {.vocab = 4997, .grad_scale = 0.25f}},
        CrossEntropyCase{"padded", DType::bf16, 3, 5000, {.vocab = 4097, .grad_scale = 0.125f}},
        CrossEntropyCase{"long", DType::bf16, 2, 58368, {.vocab = 58361}},  // f32 rows that no block can hold
        CrossEntropyCase{"tanh", DType::f32, 3, 132, {.vocab = 130, .cap = LogitCap::kTanh, .cap_a = 15}},
        CrossEntropyCase{"sigmoid",
                         DType::bf16,
                         3,
                         132,
                         {.vocab = 132, .cap = LogitCap::kSigmoid, .cap_a = 23, .cap_b = 5, .cap_c = 7.5f}},
        CrossEntropyCase{
            "smoothed", DType::f32, 3, 260, {.vocab = 257, .label_smoothing = 0.1f, .z_loss = 1e-3f}}),
    cross_entropy_case_name);

TEST(CudaCrossEntropyEdges, InfinitiesNanTiesAndTargetsOutsideMatchTheCpu) {
  Stream stream = cuda::make_stream();
  const double inf = std::numeric_limits<double>::infinity();
  Buffer x(DType::f32, {6, 4});
  assign(x, {-inf,  2,
             -inf,  2,  // ties: the lowest column counts
             1,     std::numeric_limits<double>::quiet_NaN(),
             0,     0,  // a NaN
             1,     inf,
             0,     0,  // an infinity
             1,     2,
             3,     4,  // a target outside
             -1e30, -1e30,
             -1e30, -1e30,  // far below
             1,     3,
             2,     3});  // a tie with a lower column
  const OnDevice logits(x, stream), targets(integers({1, 0, 0, 4, 2, 3}), stream);
  const OnDevice losses(DType::f32, {6}, stream), correct(DType::u8, {6}, stream),
      d(DType::f32, {6, 4}, stream);
  cross_entropy(losses, correct, d, logits, targets, {.vocab = 4}, stream);
  const Doubles got = to_doubles(losses.to_host()), gradient = to_doubles(d.to_host());
  EXPECT_NEAR(got[0], std::log(2.0), 1e-6);
  EXPECT_EQ(correct.to_host().tensor().as<uint8_t>()[0], 1);
  EXPECT_EQ(correct.to_host().tensor().as<uint8_t>()[5], 0);
  EXPECT_EQ(gradient[0], 0);
  EXPECT_TRUE(std::isnan(got[1]) && std::isnan(got[2]) && std::isnan(got[3]));
  for (size_t i = 12; i < 16; ++i) EXPECT_EQ(gradient[i], 0);
  EXPECT_NEAR(got[4], std::log(4.0), 1e-6);
}

}  // namespace
}  // namespace ingot::test
