// Sums with learned factors on a device, for both load widths and for rows with a stride.
#include "ingot/ops/mix.h"

#include "ingot/ops/row_sum.h"
#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

struct MixCase {
  DType dtype;
  int64_t N, C;
};

class CudaMix : public OnCuda, public ::testing::TestWithParam<MixCase> {
 protected:
  MixCase c = GetParam();
  Stream cpu;
  Shape shape{c.N, c.C};
  Buffer x = random_tensor(c.dtype, shape, 1), z = random_tensor(c.dtype, shape, 2),
         dy = random_tensor(c.dtype, shape, 3);
  Buffer a = random_tensor(DType::f32, {1}, 4), b = random_tensor(DType::f32, {1}, 5);
  OnDevice x_there = put(x), z_there = put(z), dy_there = put(dy), a_there = put(a), b_there = put(b);
  OnDevice scratch = result(DType::f32, {2, kRowParts});
  Buffer cpu_scratch{DType::f32, {2, row_sum_parts(Device::kCpu)}};
  // A multiply-add rounds once on one side, and twice on the other.
  double rounding = 2 * unit_roundoff(c.dtype) + 4 * unit_roundoff(DType::f32);
};

TEST_P(CudaMix, ForwardMatchesTheCpu) {
  const OnDevice y = result(c.dtype, shape);
  Buffer want(c.dtype, shape);
  for (const bool has_a : {true, false})
    for (const bool has_z : {true, false}) {
      if (!has_a && !has_z) continue;
      mix_forward(y,
                  {.x = x_there,
                   .z = has_z ? z_there.tensor() : Tensor{},
                   .a = has_a ? a_there.tensor() : Tensor{},
                   .b = b_there},
                  stream);
      mix_forward(want,
                  {.x = x, .z = has_z ? z.tensor() : Tensor{}, .a = has_a ? a.tensor() : Tensor{}, .b = b},
                  cpu);
      expect_close(y.to_host(), to_doubles(want), rounding, "y");
    }
}

TEST_P(CudaMix, BackwardMatchesTheCpuAndAddsToTheFactors) {
  const OnDevice dx = result(c.dtype, shape), dz = result(c.dtype, shape);
  Buffer da(DType::f32, {1}), db(DType::f32, {1}), want_dx(c.dtype, shape), want_dz(c.dtype, shape);
  assign(da, {2.0});
  assign(db, {-3.0});
  const OnDevice da_there = put(da), db_there = put(db);
  mix_backward({.x = dx, .z = dz, .a = da_there, .b = db_there}, dy_there,
               {.x = x_there, .z = z_there, .a = a_there, .b = b_there}, scratch, stream);
  mix_backward({.x = want_dx, .z = want_dz, .a = da, .b = db}, dy, {.x = x, .z = z, .a = a, .b = b},
               cpu_scratch, cpu);
  expect_close(dx.to_host(), to_doubles(want_dx), rounding, "dx");
  expect_close(dz.to_host(), to_doubles(want_dz), rounding, "dz");
  const double of_sums = 8 * unit_roundoff(DType::f32) * static_cast<double>(c.N * c.C);
  EXPECT_NEAR(to_doubles(da_there.to_host())[0], to_doubles(da)[0], of_sums);
  EXPECT_NEAR(to_doubles(db_there.to_host())[0], to_doubles(db)[0], of_sums);
}

TEST_P(CudaMix, RowsMayBeStridedAndWrittenOver) {
  Buffer wide = random_tensor(c.dtype, {c.N, 3 * c.C}, 6);
  const OnDevice there = put(wide);
  const auto last = [&](const Tensor& t) { return t.columns(2 * c.C, 3 * c.C); };
  mix_forward(last(there), {.x = last(there), .z = z_there, .a = a_there, .b = b_there}, stream);
  mix_forward(last(wide), {.x = last(wide), .z = z, .a = a, .b = b}, cpu);
  expect_close(there.to_host(), to_doubles(wide), rounding, "forward");
  const OnDevice dz = result(c.dtype, shape);
  mix_backward({.x = last(there), .z = dz, .a = {}, .b = {}}, last(there),
               {.x = {}, .z = {}, .a = a_there, .b = b_there}, scratch, stream);
  Buffer want_dz(c.dtype, shape);
  mix_backward({.x = last(wide), .z = want_dz, .a = {}, .b = {}}, last(wide),
               {.x = {}, .z = {}, .a = a, .b = b}, cpu_scratch, cpu);
  expect_close(there.to_host(), to_doubles(wide), 2 * rounding, "backward");
  expect_close(dz.to_host(), to_doubles(want_dz), 2 * rounding, "dz");
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaMix,
                         ::testing::Values(MixCase{DType::f32, 1, 1}, MixCase{DType::f32, 37, 768},
                                           MixCase{DType::f32, 300, 33}, MixCase{DType::bf16, 270, 40},
                                           MixCase{DType::bf16, 5, 129}, MixCase{DType::f16, 9, 64}),
                         [](const auto& info) {
                           return fmt::format("{}_{}x{}", name(info.param.dtype), info.param.N, info.param.C);
                         });

}  // namespace
}  // namespace ingot::test
