// RMSNorm and LayerNorm on a device, for every load width and every way to divide a row.
#include "ingot/ops/norm.h"
#include "ingot/ops/row_sum.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/error_of.h"
#include "tests/reference/layernorm.h"
#include "tests/reference/rmsnorm.h"

namespace ingot::test {
namespace {

constexpr float kEps = 1e-5f;

struct NormCase {
  DType dtype;
  int64_t N, C;
  bool has_weight;
};

std::string norm_case_name(const ::testing::TestParamInfo<NormCase>& info) {
  const NormCase& c = info.param;
  return fmt::format("{}_{}x{}_{}", name(c.dtype), c.N, c.C, c.has_weight ? "weight" : "weightless");
}

// As on the CPU (tests/ops/norm_test.cpp), the error is that of a sum of C rounded products
// and one rounding to the dtype.
double tolerance(const NormCase& c) {
  return 4 * unit_roundoff(c.dtype) + 4 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(c.C));
}

struct Gradient {
  Doubles dx, dw, db;
};

// The formulas of LayerNorm (ops/norm.h), or those of RMSNorm if is_centred is false.
Gradient reference_backward(const Doubles& x, const Doubles& dy, const Doubles& w, size_t C,
                            bool is_centred) {
  Gradient result{Doubles(x.size()), Doubles(C), Doubles(C)};
  const double count = static_cast<double>(C);
  for (size_t row = 0; row < x.size(); row += C) {
    double mean = 0, square = 0, g_mean = 0, product_mean = 0;
    for (size_t c = 0; is_centred && c < C; ++c) mean += x[row + c] / count;
    for (size_t c = 0; c < C; ++c) square += (x[row + c] - mean) * (x[row + c] - mean) / count;
    const double rstd = 1 / std::sqrt(square + static_cast<double>(kEps));
    const auto weight = [&](size_t c) { return w.empty() ? 1.0 : w[c]; };
    for (size_t c = 0; c < C; ++c) {
      const double xhat = (x[row + c] - mean) * rstd, g = dy[row + c] * weight(c);
      result.dw[c] += dy[row + c] * xhat;
      result.db[c] += dy[row + c];
      if (is_centred) g_mean += g / count;
      product_mean += g * xhat / count;
    }
    for (size_t c = 0; c < C; ++c) {
      const double xhat = (x[row + c] - mean) * rstd;
      result.dx[row + c] = rstd * (dy[row + c] * weight(c) - g_mean - xhat * product_mean);
    }
  }
  return result;
}

class CudaNorm : public ::testing::TestWithParam<NormCase>, protected OnCuda {
 protected:
  NormCase c = GetParam();
  size_t width = static_cast<size_t>(c.C);
  Buffer x = random_tensor(c.dtype, {c.N, c.C}, 1, 2.0);
  Buffer dy = random_tensor(c.dtype, {c.N, c.C}, 2);
  Buffer residual = random_tensor(c.dtype, {c.N, c.C}, 3);
  Buffer w = random_tensor(DType::f32, {c.C}, 4), b = random_tensor(DType::f32, {c.C}, 5);
  Doubles w_values = c.has_weight ? to_doubles(w) : Doubles{};
  Doubles b_values = c.has_weight ? to_doubles(b) : Doubles{};
  OnDevice x_there = put(x), dy_there = put(dy), w_there = put(w), b_there = put(b);
  OnDevice y = result(c.dtype, {c.N, c.C}), dx = result(c.dtype, {c.N, c.C});
  OnDevice mean = result(DType::f32, {c.N}), rstd = result(DType::f32, {c.N});
  OnDevice scratch = result(DType::f32, {2, kRowParts, c.C});
  Tensor weight = c.has_weight ? w_there.tensor() : Tensor{};
  Tensor bias = c.has_weight ? b_there.tensor() : Tensor{};

  NormOperands rms(const Tensor& to, const Tensor& residual = {}) const {
    return {
        .y = to, .sum = residual, .rstd = rstd, .x = x_there, .residual = residual, .w = weight, .eps = kEps};
  }
  NormOperands layer(const Tensor& to) const {
    return {.y = to, .mean = mean, .rstd = rstd, .x = x_there, .w = weight, .b = bias, .eps = kEps};
  }
  void forward() { rmsnorm_forward(rms(y), stream); }
  // The operands of RMSNorm's backward with the gradient of the weight.
  NormBackwardOperands with_sum(const Tensor& dw) const {
    return {.dx = dx, .dw = dw, .dy = dy_there, .x = x_there, .w = weight, .rstd = rstd, .scratch = scratch};
  }
  NormBackwardOperands with_sums(const Tensor& dw, const Tensor& db) const {
    NormBackwardOperands t = with_sum(dw);
    t.db = db;
    t.mean = mean;
    return t;
  }

  // The bound is for f32 sums over N rows of products of order 1.
  double sum_tolerance() const { return 8 * unit_roundoff(DType::f32) * static_cast<double>(c.N) + 1e-5; }
};

TEST_P(CudaNorm, RmsForwardEqualsTheReference) {
  forward();
  expect_close(y.to_host(), rmsnorm_reference(to_doubles(x), w_values, width, kEps), tolerance(c), "y");
}

TEST_P(CudaNorm, RmsForwardAddsResidualAndMayOverwriteIt) {
  const OnDevice sum = put(residual);
  rmsnorm_forward(rms(y, sum), stream);
  Doubles want = to_doubles(x);
  const Doubles added = to_doubles(residual);
  for (size_t i = 0; i < want.size(); ++i) want[i] += added[i];
  const Buffer kept = sum.to_host();
  expect_close(kept, want, 2 * unit_roundoff(c.dtype), "sum");
  expect_close(y.to_host(), rmsnorm_reference(to_doubles(kept), w_values, width, kEps), tolerance(c), "y");
}

TEST_P(CudaNorm, RmsBackwardEqualsTheReference) {
  const OnDevice dw = put(zeros(DType::f32, {c.C}));
  forward();
  rmsnorm_backward(with_sum(dw), stream);
  const Gradient want = reference_backward(to_doubles(x), to_doubles(dy), w_values, width, false);
  expect_close(dx.to_host(), want.dx, 4 * tolerance(c), "dx");
  expect_close(dw.to_host(), want.dw, sum_tolerance(), "dw", std::sqrt(static_cast<double>(c.N)));
}

TEST_P(CudaNorm, RmsBackwardAddsToGradientsInPlace) {
  const OnDevice dw = put(w), d_residual = put(residual);
  forward();
  NormBackwardOperands in_place = with_sum(dw);
  in_place.dx = in_place.d_residual = d_residual;
  rmsnorm_backward(in_place, stream);
  Gradient want = reference_backward(to_doubles(x), to_doubles(dy), w_values, width, false);
  const Doubles added = to_doubles(residual), old = to_doubles(w);
  for (size_t i = 0; i < added.size(); ++i) want.dx[i] += added[i];
  for (size_t i = 0; i < old.size(); ++i) want.dw[i] += old[i];
  expect_close(d_residual.to_host(), want.dx, 4 * tolerance(c), "dx", 4);
  expect_close(dw.to_host(), want.dw, sum_tolerance(), "dw", std::sqrt(static_cast<double>(c.N)));
}

TEST_P(CudaNorm, LayerForwardEqualsTheReference) {
  layernorm_forward(layer(y), stream);
  const Doubles want = layernorm_reference(to_doubles(x), w_values, b_values, width, kEps);
  expect_close(y.to_host(), want, tolerance(c), "y");
}

TEST_P(CudaNorm, LayerBackwardEqualsTheReference) {
  if (c.C == 1) return;  // a row of one element has no variance: rstd is 1 / sqrt(eps), dx only rounding
  const OnDevice dw = put(zeros(DType::f32, {c.C})), db = put(zeros(DType::f32, {c.C}));
  layernorm_forward(layer(y), stream);
  layernorm_backward(with_sums(dw, db), stream);
  const Gradient want = reference_backward(to_doubles(x), to_doubles(dy), w_values, width, true);
  expect_close(dx.to_host(), want.dx, 4 * tolerance(c), "dx");
  expect_close(dw.to_host(), want.dw, sum_tolerance(), "dw", std::sqrt(static_cast<double>(c.N)));
  expect_close(db.to_host(), want.db, sum_tolerance(), "db", std::sqrt(static_cast<double>(c.N)));
}

// The amax is that of the rounded results, and it only rises.
TEST_P(CudaNorm, AmaxIsRaisedToTheLargestResult) {
  const OnDevice sum = put(residual), plain = result(c.dtype, {c.N, c.C});
  const OnDevice dw = put(zeros(DType::f32, {c.C})), db = put(zeros(DType::f32, {c.C}));
  const auto expect_amax = [&](const RaisedAmax& amax, const OnDevice& of) {
    EXPECT_EQ(amax.value(), largest(of.to_host()));
  };
  const RaisedAmax of_rms(0, stream), of_layer(0, stream), of_residual(0, stream), above(1e6, stream);
  rmsnorm_forward(rms(y.tensor().with_amax(of_rms)), stream);
  expect_amax(of_rms, y);
  rmsnorm_forward(rms(plain.tensor().with_amax(above)), stream);
  expect_same_bits(plain.to_host(), y.to_host(), "y with an amax");
  EXPECT_EQ(above.value(), 1e6);
  rmsnorm_forward(rms(y.tensor().with_amax(of_residual), sum), stream);
  expect_amax(of_residual, y);
  layernorm_forward(layer(y.tensor().with_amax(of_layer)), stream);
  expect_amax(of_layer, y);
  const RaisedAmax of_gradient(0, stream);
  NormBackwardOperands with_amax = with_sums(dw, db);
  with_amax.dx = dx.tensor().with_amax(of_gradient);
  with_amax.d_residual = dy_there;
  layernorm_backward(with_amax, stream);
  expect_amax(of_gradient, dx);
}

TEST_P(CudaNorm, EqualCallsGiveEqualBits) {
  const OnDevice dw = put(zeros(DType::f32, {c.C})), again = put(zeros(DType::f32, {c.C}));
  forward();
  rmsnorm_backward(with_sum(dw), stream);
  const Buffer first = dx.to_host();
  rmsnorm_backward(with_sum(again), stream);
  expect_same_bits(dx.to_host(), first, "dx");
  expect_same_bits(again.to_host(), dw.to_host(), "dw");
}

// The sizes cover scalar rows, warp rows and block rows; 4104 f32 columns need blocks of 1024 threads.
std::vector<NormCase> norm_cases() {
  std::vector<NormCase> all;
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t C : {1, 31, 32, 33, 257, 768, 1032}) all.push_back({dtype, C == 32 ? 600 : 5, C, true});
  all.push_back({DType::bf16, 3, 768, false});
  all.push_back({DType::f16, 5, 264, true});
  all.push_back({DType::f32, 3, 33, false});
  all.push_back(
      {DType::f32, 2 * kRowParts + 3, 520, true});  // blocks with several rows, which they read early
  all.push_back({DType::f32, 2, 4104, true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaNorm, ::testing::ValuesIn(norm_cases()), norm_case_name);

TEST(CudaNormErrors, ScratchMustHoldTheParts) {
  Stream stream = cuda::make_stream();
  const Buffer x = random_tensor(DType::f32, {2, 8}, 1), w = zeros(DType::f32, {8});
  const OnDevice there(x, stream), dw(w, stream), rstd(zeros(DType::f32, {2}), stream);
  const OnDevice scratch(DType::f32, {4, 8}, stream);
  EXPECT_EQ(error_of([&] {
              rmsnorm_backward(
                  {.dx = there, .dw = dw, .dy = there, .x = there, .rstd = rstd, .scratch = scratch}, stream);
            }),
            "rmsnorm_backward: scratch on the device must be f32 of at least 1 x 264 x 8 elements, got f32 "
            "(4, 8)");
}

}  // namespace
}  // namespace ingot::test
