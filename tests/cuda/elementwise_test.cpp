// Casts and dropout on a device: bit for bit what the CPU makes of the same inputs.
#include "ingot/ops/cast.h"
#include "ingot/ops/dropout.h"
#include "tests/cuda/on_device.h"

namespace ingot::testing {
namespace {

TEST(CudaCast, RoundsAsTheCpu) {
  Stream stream = cuda::make_stream(), cpu;
  for (DType from : {DType::f32, DType::bf16})
    for (DType to : {DType::f32, DType::bf16})
      for (int64_t n : {1, 31, 4096}) {
        Buffer x = random_tensor(from, {n}, 1);
        if (n > 1)
          assign(x.tensor().rows(0, 4), {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1e-40, -1e30});  // ties, a subnormal
        const OnDevice there(x, stream), y(to, {n}, stream);
        Buffer want(to, {n});
        cast(y, there, stream);
        cast(want, x, cpu);
        expect_same_bits(y.to_host(), want, fmt::format("{} to {}", name(from), name(to)));
      }
}

TEST(CudaCast, NanStaysNan) {
  Stream stream = cuda::make_stream();
  Buffer x(DType::f32, {8});
  assign(x, Doubles(8, std::numeric_limits<double>::quiet_NaN()));
  const OnDevice there(x, stream), y(DType::bf16, {8}, stream);
  cast(y, there, stream);
  for (double v : to_doubles(y.to_host())) EXPECT_TRUE(std::isnan(v));
}

TEST(CudaDropout, DropsTheElementsThatTheCpuDrops) {
  Stream stream = cuda::make_stream(), cpu;
  const RandomKey key{.seed = 7, .purpose = Purpose::kDropout, .stream = 3, .step = 11};
  for (DType dtype : {DType::f32, DType::bf16})
    for (uint64_t first_index : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 34) + 4})
      for (int64_t n : {1, 33, 2048}) {
        const Buffer x = random_tensor(dtype, {n}, 1);
        const OnDevice there(x, stream), y(dtype, {n}, stream);
        Buffer want(dtype, {n});
        dropout(y, there, 0.3f, key, first_index, stream);
        dropout(want, x, 0.3f, key, first_index, cpu);
        expect_same_bits(y.to_host(), want, "y");
      }
}

}  // namespace
}  // namespace ingot::testing
