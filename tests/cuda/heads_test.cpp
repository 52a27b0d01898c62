// RoPE and QK-norm on a device, on views into one packed (B,T,(H+2K)D) buffer as in the attention layer.
#include "ingot/ops/pack_heads.h"
#include "ingot/ops/qk_norm.h"
#include "ingot/ops/rope.h"
#include "ingot/ops/row_sum.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/head_tensor.h"
#include "tests/reference/qk_norm.h"

namespace ingot::test {
namespace {

constexpr float kEps = 1e-6f;

struct HeadsCase {
  DType dtype;
  int64_t B, T, H, D, R, offset;
};

std::string heads_case_name(const ::testing::TestParamInfo<HeadsCase>& info) {
  const HeadsCase& c = info.param;
  return fmt::format("{}_T{}_H{}_D{}_R{}", name(c.dtype), c.T, c.H, c.D, c.R);
}

class CudaHeads : public ::testing::TestWithParam<HeadsCase>, protected OnCuda {
 protected:
  HeadsCase c = GetParam();
  int64_t packed = (c.H + 2) * c.D;
  Buffer qkv = random_tensor(c.dtype, {c.B, c.T, packed}, 1),
         d_qkv = random_tensor(c.dtype, {c.B, c.T, packed}, 2);
  Buffer table = make_table();
  OnDevice table_there = put(table);
  HeadShape shape{static_cast<size_t>(c.B), static_cast<size_t>(c.T), static_cast<size_t>(c.H),
                  static_cast<size_t>(c.D)};
  size_t R = static_cast<size_t>(c.R), offset = static_cast<size_t>(c.offset);

  Buffer make_table() const {
    Buffer made(DType::f32, {c.T + c.offset, c.R});
    rope_table(made, 10000);
    return made;
  }
  // Returns the query heads of a packed tensor.
  Tensor queries(const Tensor& t) const { return t.columns(0, c.H * c.D).split_last(c.H, c.D); }
  // Expects that everything behind the queries is unchanged.
  void expect_rest_untouched(const Tensor& got, const Tensor& was) const {
    for (int64_t row = 0; row < c.B * c.T; ++row) {
      const size_t begin = static_cast<size_t>(row * packed + c.H * c.D) * size_bytes(c.dtype);
      const size_t bytes = static_cast<size_t>(2 * c.D) * size_bytes(c.dtype);
      EXPECT_EQ(
          std::memcmp(static_cast<char*>(got.data) + begin, static_cast<char*>(was.data) + begin, bytes), 0);
    }
  }
  // A rotation is two products and a sum; normalisation adds one product; then the result is rounded.
  double tolerance() const { return 2 * unit_roundoff(c.dtype) + 32 * unit_roundoff(DType::f32); }
};

TEST_P(CudaHeads, RotationEqualsTheReferenceForwardAndBackward) {
  const OnDevice there = put(qkv);
  const Doubles x = gather(queries(qkv)), angles = to_doubles(table);
  rope_forward(queries(there), table_there, c.offset, stream);
  const Buffer turned = there.to_host();
  expect_near(queries(turned), rope_reference(x, shape, angles, R, offset), tolerance(), "y");
  expect_rest_untouched(turned, qkv);
  const OnDevice back = put(d_qkv);
  rope_backward(queries(back), table_there, c.offset, stream);
  const Doubles want = rope_reference(gather(queries(d_qkv)), shape, angles, R, offset, -1);
  const Buffer dx = back.to_host();
  expect_near(queries(dx), want, tolerance(), "dx");
  if (c.R < c.D) return;
  const OnDevice again = put(d_qkv);
  const RaisedAmax amax(0, stream);
  rope_backward(queries(again.tensor().with_amax(amax)), table_there, c.offset, stream);
  expect_same_bits(again.to_host(), dx, "dx with its amax");
  double most = 0;
  for (const double v : gather(queries(dx))) most = std::max(most, std::abs(v));
  EXPECT_EQ(amax.value(), most);
}

TEST_P(CudaHeads, QkNormAndRotationEqualTheReference) {
  const Doubles x = gather(queries(qkv)), angles = to_doubles(table);
  for (bool is_rotated : {true, false}) {
    const OnDevice there = put(qkv), gradient = put(d_qkv), rstd = result(DType::f32, {c.B, c.T, c.H});
    const Tensor positions = is_rotated ? table_there.tensor() : Tensor{};
    const Doubles used = is_rotated ? angles : Doubles{};
    qk_norm_forward(queries(there), rstd, positions, c.offset, kEps, stream);
    const Buffer y = there.to_host();
    expect_near(queries(y), qk_norm_reference(x, shape, used, R, offset, static_cast<double>(kEps)),
                tolerance(), "y");
    expect_rest_untouched(y, qkv);
    qk_norm_backward(queries(gradient), queries(there), rstd, positions, c.offset, stream);
    const Doubles dy = gather(queries(d_qkv));
    const Doubles want = central_differences(
        [&](const Doubles& v) {
          return dot(qk_norm_reference(v, shape, used, R, offset, static_cast<double>(kEps)), dy);
        },
        x);
    // The mean of dy * y comes from a y that was rounded to the dtype.
    const Buffer dx = gradient.to_host();
    expect_near(queries(dx), want, 6 * tolerance() + 1e-6, "dx");
    expect_rest_untouched(dx, d_qkv);
  }
}

// The last head is a key's.
TEST_P(CudaHeads, GainsOfQkNormEqualTheReference) {
  const size_t q_heads = shape.H - 1;
  const Buffer gains = random_tensor(DType::f32, {2, c.D}, 3), old = random_tensor(DType::f32, {2, c.D}, 4);
  const auto pair = [&](const Tensor& t) {
    return QkGains{t.rows(0, 1).reshape({c.D}), t.rows(1, 2).reshape({c.D}), static_cast<int64_t>(q_heads)};
  };
  const Doubles x = gather(queries(qkv)), angles = to_doubles(table), dy = gather(queries(d_qkv));
  for (bool is_rotated : {true, false}) {
    const OnDevice there = put(qkv), gradient = put(d_qkv), rstd = result(DType::f32, {c.B, c.T, c.H});
    const OnDevice gains_there = put(gains), d_gains = put(old), raw = result(c.dtype, {c.B, c.T, c.H, c.D});
    const OnDevice scratch = result(DType::f32, {3 * row_sum_parts(Device::kCuda), c.D});
    const Tensor positions = is_rotated ? table_there.tensor() : Tensor{};
    const auto value = [&](const Doubles& x_values, const Doubles& gain_values) {
      return qk_norm_reference(x_values, shape, is_rotated ? angles : Doubles{}, R, offset,
                               static_cast<double>(kEps), gain_values, q_heads);
    };
    qk_norm_gain_forward({.x = queries(there),
                          .raw = raw,
                          .rstd = rstd,
                          .gains = pair(gains_there),
                          .table = positions,
                          .position_offset = c.offset,
                          .eps = kEps},
                         stream);
    const Buffer y = there.to_host();
    expect_near(queries(y), value(x, to_doubles(gains)), tolerance(), "y");
    expect_rest_untouched(y, qkv);
    EXPECT_EQ(gather(raw.to_host()), x);
    qk_norm_gain_backward({.dy = queries(gradient),
                           .d_gains = pair(d_gains),
                           .raw = raw,
                           .rstd = rstd,
                           .gains = pair(gains_there),
                           .table = positions,
                           .position_offset = c.offset,
                           .scratch = scratch},
                          stream);
    const Buffer dx = gradient.to_host();
    expect_near(
        queries(dx),
        central_differences([&](const Doubles& v) { return dot(value(v, to_doubles(gains)), dy); }, x),
        6 * tolerance() + 1e-6, "dx");
    expect_rest_untouched(dx, d_qkv);
    Doubles want =
        central_differences([&](const Doubles& v) { return dot(value(x, v), dy); }, to_doubles(gains));
    const Doubles before = to_doubles(old);
    for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
    const Buffer got = d_gains.to_host();
    expect_near(got.tensor().reshape({1, 1, 2, c.D}), want, 1e-4, "d_gains");
  }
}

TEST_P(CudaHeads, RowsOfHeadsAreCopiedThereAndBack) {
  const OnDevice there = put(qkv), rows = result(c.dtype, {c.B * c.T * c.H, c.D}), back = put(d_qkv);
  pack_heads(rows, queries(there), stream);
  Buffer want(c.dtype, {c.B * c.T * c.H, c.D});
  Stream cpu;
  pack_heads(want, queries(qkv), cpu);
  expect_same_bits(rows.to_host(), want, "rows");
  unpack_heads(queries(back), rows, stream);
  const Buffer got = back.to_host();
  expect_rest_untouched(got, d_qkv);
  unpack_heads(queries(d_qkv), want, cpu);
  expect_same_bits(got, d_qkv, "heads");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaHeads,
    ::testing::Values(
        HeadsCase{DType::f32, 2, 3, 2, 16, 16, 0}, HeadsCase{DType::f32, 1, 5, 1, 64, 32, 2},
        HeadsCase{DType::f32, 1, 2, 1, 7, 6, 0}, HeadsCase{DType::bf16, 1, 9, 2, 32, 32, 1},
        HeadsCase{DType::bf16, 1, 2, 1, 192, 192, 0}, HeadsCase{DType::bf16, 1, 3, 1, 160, 8, 0},
        HeadsCase{DType::f16, 1, 4, 2, 16, 16, 1},
        // Several heads per warp, in two rounds, the last one partly empty; a head with a part that
        // is not rotated.
        HeadsCase{DType::bf16, 1, 3, 18, 128, 128, 1}, HeadsCase{DType::bf16, 2, 2, 35, 64, 64, 0},
        HeadsCase{DType::f16, 1, 3, 5, 96, 64, 0}),
    heads_case_name);

}  // namespace
}  // namespace ingot::test
