#include "ingot/ops/activation.h"

#include <functional>

#include "ingot/ops/bias.h"
#include "ingot/ops/row_sum.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/activation.h"

namespace ingot::test {
namespace {

struct ActivationCase {
  DType dtype;
  int64_t N, F;
};

std::string activation_case_name(const ::testing::TestParamInfo<ActivationCase>& info) {
  return fmt::format("{}_{}x{}", name(info.param.dtype), info.param.N, info.param.F);
}

// The tolerance is one rounding to the dtype, plus the error of the rule, at most 2^-21.
double tolerance(const ActivationCase& c) { return 2 * unit_roundoff(c.dtype) + 0x1p-20; }

constexpr Activation kKinds[] = {Activation::kGeluTanh, Activation::kGeluExact, Activation::kRelu2};

class CudaActivation : public ::testing::TestWithParam<ActivationCase>, protected OnCuda {
 protected:
  ActivationCase c = GetParam();
  size_t width = static_cast<size_t>(c.F);
  Buffer x = random_tensor(c.dtype, {c.N, c.F}, 1, 2.0), dy = random_tensor(c.dtype, {c.N, c.F}, 2);
  Buffer bias = random_tensor(DType::f32, {c.F}, 3);
  Buffer gate_up = random_tensor(c.dtype, {c.N, 2 * c.F}, 4, 2.0);
  OnDevice x_there = put(x), dy_there = put(dy), bias_there = put(bias), gate_up_there = put(gate_up);
  OnDevice y = result(c.dtype, {c.N, c.F}), scratch = result(DType::f32, {kRowParts, c.F});
};

TEST_P(CudaActivation, ForwardEqualsTheReference) {
  for (Activation kind : kKinds)
    for (bool has_bias : {true, false}) {
      activation_forward(y, x_there, has_bias ? bias_there.tensor() : Tensor{}, kind, stream);
      Doubles want = to_doubles(x);
      for (size_t i = 0; i < want.size(); ++i)
        want[i] = activation_reference(kind, want[i] + (has_bias ? to_doubles(bias)[i % width] : 0.0));
      expect_close(y.to_host(), want, tolerance(c), "y");
    }
}

TEST_P(CudaActivation, BackwardAndItsColumnSumsEqualTheReference) {
  for (Activation kind : kKinds) {
    const OnDevice dbias = put(bias);
    activation_backward({.dx = y,
                         .dbias = dbias,
                         .dy = dy_there,
                         .x = x_there,
                         .bias = bias_there,
                         .kind = kind,
                         .scratch = scratch},
                        stream);
    const Doubles b = to_doubles(bias), d = to_doubles(dy);
    Doubles want = to_doubles(x), want_dbias = b;
    const double h = 1e-6;
    for (size_t i = 0; i < want.size(); ++i) {
      const double at = want[i] + b[i % width];
      want[i] = d[i] * (activation_reference(kind, at + h) - activation_reference(kind, at - h)) / (2 * h);
      want_dbias[i % width] += want[i];
    }
    const double spread = std::sqrt(static_cast<double>(c.N));
    expect_close(y.to_host(), want, 2 * tolerance(c), "dx");
    expect_close(dbias.to_host(), want_dbias, 16 * spread * 0x1p-20, "dbias", spread);
    const Buffer first = y.to_host();
    activation_backward({.dx = y, .dy = dy_there, .x = x_there, .bias = bias_there, .kind = kind}, stream);
    expect_same_bits(y.to_host(), first, "dx without dbias");
  }
}

TEST_P(CudaActivation, SwigluEqualsTheReference) {
  swiglu_forward(y, gate_up_there, stream);
  const Doubles values = to_doubles(gate_up), d = to_doubles(dy);
  expect_close(y.to_host(), swiglu_reference(values, width), tolerance(c), "y", 4);
  const OnDevice d_gate_up = put(gate_up);
  swiglu_backward(d_gate_up, dy_there, d_gate_up, stream);  // in place
  Doubles want(values.size());
  const double h = 1e-6;
  for (size_t i = 0; i < d.size(); ++i) {
    const size_t gate = i / width * 2 * width + i % width, up = gate + width;
    const double slope = (silu_reference(values[gate] + h) - silu_reference(values[gate] - h)) / (2 * h);
    want[gate] = d[i] * values[up] * slope;
    want[up] = d[i] * silu_reference(values[gate]);
  }
  expect_close(d_gate_up.to_host(), want, 2 * tolerance(c), "d_gate_up", 4);
}

// The amax is that of the rounded results.
TEST_P(CudaActivation, AmaxIsRaisedToTheLargestResult) {
  const OnDevice d_gate_up = put(gate_up), dbias = put(bias);
  const auto expect_raised = [&](const OnDevice& of, const std::function<void(const Tensor& of)>& op) {
    const RaisedAmax amax(0, stream);
    op(of.tensor().with_amax(amax));
    EXPECT_EQ(amax.value(), largest(of.to_host()));
  };
  expect_raised(y, [&](const Tensor& to) { swiglu_forward(to, gate_up_there, stream); });
  expect_raised(d_gate_up, [&](const Tensor& to) { swiglu_backward(to, dy_there, gate_up_there, stream); });
  for (const Activation kind : kKinds) {
    expect_raised(y, [&](const Tensor& to) { activation_forward(to, x_there, bias_there, kind, stream); });
    for (const Tensor& sums : {dbias.tensor(), Tensor{}})
      expect_raised(y, [&](const Tensor& to) {
        activation_backward({.dx = to,
                             .dbias = sums,
                             .dy = dy_there,
                             .x = x_there,
                             .bias = bias_there,
                             .kind = kind,
                             .scratch = scratch},
                            stream);
      });
  }
  expect_raised(dy_there, [&](const Tensor& from) { bias_backward(dbias, from, scratch, stream); });
}

TEST_P(CudaActivation, BiasEqualsTheReference) {
  const OnDevice sum = put(x), db = put(bias);
  bias_forward(sum, bias_there, stream);
  const Doubles b = to_doubles(bias);
  Doubles want = to_doubles(x), want_db = b;
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] += b[i % width];
    want_db[i % width] += to_doubles(dy)[i];
  }
  expect_close(sum.to_host(), want, 2 * unit_roundoff(c.dtype), "y");
  bias_backward(db, dy_there, scratch, stream);
  const double spread = std::sqrt(static_cast<double>(c.N));
  expect_close(db.to_host(), want_db, 8 * spread * unit_roundoff(DType::f32), "db", spread);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, CudaActivation,
    ::testing::Values(ActivationCase{DType::f32, 3, 1}, ActivationCase{DType::f32, 3, 33},
                      ActivationCase{DType::f32, 5, 264}, ActivationCase{DType::bf16, 3, 31},
                      ActivationCase{DType::bf16, 2, 520}, ActivationCase{DType::bf16, 300, 8},
                      ActivationCase{DType::f16, 3, 40}),
    activation_case_name);

TEST(CudaActivationRules, SaturateAndPassNan) {
  Stream stream = cuda::make_stream();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Buffer x(dtype, {1, 8});
    assign(x, {100, -100, 1e30, -1e30, 0, -0.0, 40, -40});
    const OnDevice there(x, stream), y(dtype, {1, 8}, stream);
    activation_forward(y, there, {}, Activation::kGeluTanh, stream);
    const Doubles got = to_doubles(y.to_host());
    EXPECT_EQ(got[0], 100);
    EXPECT_EQ(got[1], 0);
    EXPECT_EQ(got[4], 0);
    EXPECT_EQ(got[6], 40);
    assign(x, Doubles(8, static_cast<double>(nan)));
    for (Activation kind : kKinds) {
      const OnDevice bad(x, stream);
      activation_forward(bad, bad, {}, kind, stream);
      for (double v : to_doubles(bad.to_host())) EXPECT_TRUE(std::isnan(v));
    }
  }
}

}  // namespace
}  // namespace ingot::test
