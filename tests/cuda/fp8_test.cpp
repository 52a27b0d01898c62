// FP8 casts on a device give the CPU's codes, counts and scales, bit for bit.
#include "ingot/ops/cuda_fp8.h"

#include <algorithm>
#include <deque>

#include "ingot/core/float8.h"
#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

Buffer unsigned_zeros(int64_t n) {
  Buffer buffer(DType::u32, {n});
  std::memset(buffer.tensor().data, 0, buffer.tensor().bytes());
  return buffer;
}

Buffer scalar(double value) {
  Buffer buffer(DType::f32, {1});
  assign(buffer, {value});
  return buffer;
}

// The values span the whole range of the format: some saturate, some underflow, some
// lie halfway between codes.
Buffer wide_values(DType dtype, const Shape& shape) {
  Buffer x = random_tensor(dtype, shape, 1);
  Doubles values = to_doubles(x);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], static_cast<int>(i % 40) - 24);
  if (values.size() > 4)
    values[0] = 1 + 0x1p-4, values[1] = -(1 + 3 * 0x1p-4), values[2] = 0, values[3] = 1e30;
  assign(x, values);
  return x;
}

class CudaFp8 : public ::testing::TestWithParam<std::tuple<DType, DType>>, protected OnCuda {
 protected:
  DType dtype = std::get<0>(GetParam()), format = std::get<1>(GetParam());
  OnDevice amax = put(scalar(0)), counts = put(unsigned_zeros(2)), scale = put(scalar(3));
  Stream cpu;

  void expect_meter(const Fp8Stats& want) {
    EXPECT_EQ(to_doubles(amax.to_host())[0], static_cast<double>(want.amax));
    const Buffer got = counts.to_host();
    EXPECT_EQ(got.tensor().as<uint32_t>()[0], want.saturated);
    EXPECT_EQ(got.tensor().as<uint32_t>()[1], want.underflowed);
  }
};

TEST_P(CudaFp8, CodesAndCountsEqualTheCpu) {
  for (int64_t n : {1, 33, 4096}) {
    const Buffer x = wide_values(dtype, {n});
    const OnDevice there = put(x), to = result(format, {n});
    const OnDevice own_amax = put(scalar(0)), own_counts = put(unsigned_zeros(2));
    cuda::cast_to_fp8(to, there, scale, {own_amax, own_counts}, stream);
    Buffer want(format, {n});
    Fp8Stats stats;
    cast_to_fp8(want, x, 3, stats, cpu);
    expect_same_bits(to.to_host(), want, "codes");
    EXPECT_EQ(to_doubles(own_amax.to_host())[0], static_cast<double>(stats.amax));
    EXPECT_EQ(own_counts.to_host().tensor().as<uint32_t>()[0], stats.saturated);
    EXPECT_EQ(own_counts.to_host().tensor().as<uint32_t>()[1], stats.underflowed);
  }
}

TEST_P(CudaFp8, BothLayoutsEqualSeparateCasts) {
  const int64_t N = 72, C = 136;  // partly filled tiles at both ends
  const Buffer x = wide_values(dtype, {N, C});
  const OnDevice there = put(x), to = result(format, {N, C}), transposed = result(format, {C, N});
  cuda::cast_to_fp8_both_ways(to, transposed, there, scale, {amax, counts}, stream);
  Buffer want(format, {N, C});
  Fp8Stats stats;
  cast_to_fp8(want, x, 3, stats, cpu);
  expect_same_bits(to.to_host(), want, "codes");
  const Buffer turned = transposed.to_host();
  const auto* codes = static_cast<const uint8_t*>(want.tensor().data);
  const auto* got = static_cast<const uint8_t*>(turned.tensor().data);
  for (int64_t n = 0; n < N; ++n)
    for (int64_t c = 0; c < C; ++c) ASSERT_EQ(got[c * N + n], codes[n * C + c]) << n << ", " << c;
  expect_meter(stats);
}

TEST_P(CudaFp8, ScalesEqualTheCpu) {
  for (double value : {1.0, 0.0, 3e-20, 447.0, 1e30}) {
    const OnDevice inverse = put(scalar(0));
    for (Fp8ScaleFloor floor : {Fp8ScaleFloor::kExact, Fp8ScaleFloor::kPowerOfTwo}) {
      const OnDevice of = put(scalar(value));
      cuda::set_fp8_scale(scale, inverse, of, format, floor, stream);
      EXPECT_EQ(to_doubles(of.to_host())[0], 0) << "the amax is taken";
      const float want = fp8_scale(format, static_cast<float>(value), floor);
      EXPECT_EQ(to_doubles(scale.to_host())[0], static_cast<double>(want));
      EXPECT_EQ(to_doubles(inverse.to_host())[0], static_cast<double>(1 / want));
    }
  }
}

TEST_P(CudaFp8, AmaxOnlyRisesAndIgnoresNan) {
  Buffer x = random_tensor(dtype, {3000}, 1);
  assign(x.tensor().rows(0, 2), {std::numeric_limits<double>::quiet_NaN(), -64});
  cuda::raise_amax(put(x).tensor().with_amax(amax), stream);
  EXPECT_EQ(to_doubles(amax.to_host())[0], 64);
  cuda::raise_amax(put(random_tensor(dtype, {8}, 2)).tensor().with_amax(amax), stream);
  EXPECT_EQ(to_doubles(amax.to_host())[0], 64);
}

// The columns of a wider tensor, of widths and offsets that allow 16-byte loads or do not.
TEST_P(CudaFp8, AmaxOfStridedRowsIsThatOfTheirColumns) {
  for (const auto& [first, count] : {std::pair{64, 32}, std::pair{3, 5}, std::pair{8, 12}}) {
    const Buffer x = random_tensor(dtype, {70, 96}, 1);
    const OnDevice there = put(x), most = put(scalar(0));
    cuda::raise_amax(there.tensor().with_amax(most).columns(first, first + count), stream);
    double want = 0;
    const Doubles values = to_doubles(x);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto column = static_cast<int64_t>(i % 96);
      if (column >= first && column < first + count) want = std::max(want, std::abs(values[i]));
    }
    EXPECT_EQ(to_doubles(most.to_host())[0], want);
  }
}

// Each row, and each column of the transposed copy, has a scale; values, scales and counts are the CPU's.
TEST_P(CudaFp8, RowwiseScalesEqualTheCpu) {
  if (format != DType::f8e4m3) return;
  for (const Shape& shape : {Shape{72, 136}, Shape{8, 1024}, Shape{520, 8}}) {
    const int64_t N = shape[0], C = shape[1];
    Buffer x = random_tensor(dtype, shape, 1);
    Doubles values = to_doubles(x);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] *=
          std::ldexp(1.0, static_cast<int>(i % 5) - 4 * static_cast<int>(i / static_cast<size_t>(C) % 7));
    for (int64_t c = 0; c < C; ++c) values[static_cast<size_t>(c)] = 0;  // a row of zeros
    assign(x, values);
    const OnDevice there = put(x);
    Buffer want(DType::bf16, shape), column_amax(DType::f32, {C});
    for (const bool is_rows : {true, false}) {
      const int64_t lines = is_rows ? N : C;
      const OnDevice codes = result(format, is_rows ? shape : Shape{C, N}),
                     inverse = result(DType::f32, {lines});
      const OnDevice own_amax = put(scalar(0)), own_counts = put(unsigned_zeros(2)),
                     scales = result(DType::f32, {C});
      Fp8Stats stats;
      if (is_rows) {
        cuda::cast_rows_to_fp8({codes, inverse}, there, {own_amax, own_counts}, stream);
        round_rows_to_fp8(want, x, format, stats, cpu);
      } else {
        cuda::cast_columns_to_fp8({codes, inverse}, there, scales, cuda::Fp8ColumnScales::kEach,
                                  {own_amax, own_counts}, stream);
        round_columns_to_fp8(want, x, format, column_amax, stats, cpu);
      }
      const Buffer got = codes.to_host(), factors = inverse.to_host();
      const Doubles rounded = to_doubles(want);
      for (int64_t n = 0; n < N; ++n)
        for (int64_t c = 0; c < C; ++c) {
          const f8e4m3 code = got.tensor().as<f8e4m3>()[is_rows ? n * C + c : c * N + n];
          const float value = static_cast<float>(code) * factors.tensor().as<float>()[is_rows ? n : c];
          ASSERT_EQ(static_cast<double>(value), rounded[static_cast<size_t>(n * C + c)]) << n << ", " << c;
        }
      EXPECT_EQ(to_doubles(own_amax.to_host())[0], static_cast<double>(stats.amax));
      EXPECT_EQ(own_counts.to_host().tensor().as<uint32_t>()[0], stats.saturated);
      EXPECT_EQ(own_counts.to_host().tensor().as<uint32_t>()[1], stats.underflowed);
    }
  }
}

TEST_P(CudaFp8, ColumnwiseCastEqualsTheCpu) {
  if (format != DType::f8e4m3) return;
  const int64_t N = 24, C = 40;
  const Buffer x = random_tensor(dtype, {N, C}, 1);
  const OnDevice codes = result(format, {C, N}), inverse = result(DType::f32, {C}),
                 scales = result(DType::f32, {C});
  cuda::cast_columns_to_fp8({codes, inverse}, put(x), scales, cuda::Fp8ColumnScales::kOne, {amax, counts},
                            stream);
  const float whole = fp8_scale(format, absolute_max(x, cpu), Fp8ScaleFloor::kPowerOfTwo);
  Buffer want(format, {N, C});
  Fp8Stats stats;
  cast_to_fp8(want, x, whole, stats, cpu);
  for (double v : to_doubles(inverse.to_host())) EXPECT_EQ(v, static_cast<double>(1 / whole));
  const Buffer got = codes.to_host();
  for (int64_t n = 0; n < N; ++n)
    for (int64_t c = 0; c < C; ++c)
      ASSERT_EQ(got.tensor().as<f8e4m3>()[c * N + n].bits, want.tensor().as<f8e4m3>()[n * C + c].bits);
  expect_meter(stats);
}

class CudaFp8History : public ::testing::Test, protected OnCuda {};

// The scales of delayed scaling follow from the largest of the last 40 amaxes, more than a warp has lanes.
TEST_F(CudaFp8History, ScalesFollowFromTheLastAmaxes) {
  constexpr int kSteps = 40, kTensors = 3;
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto numbers = [](const Shape& shape, const Doubles& values) {
    Buffer buffer(DType::f32, shape);
    assign(buffer, values);
    return buffer;
  };
  const Doubles limits = {448, 57344, 224};
  const OnDevice amaxes = put(numbers({kTensors, kSteps}, Doubles(kTensors * kSteps))),
                 next = put(unsigned_zeros(kTensors)), limit = put(numbers({kTensors}, limits));
  const OnDevice scales = put(numbers({kTensors, 4}, Doubles(kTensors * 4, 5))),
                 inverses = put(numbers({kTensors, 4}, Doubles(kTensors * 4, 0.2)));
  std::vector<std::deque<double>> past(kTensors);
  Doubles want(kTensors, 5);  // a scale stays while all amaxes are 0
  for (int step = 0; step < 100; ++step) {
    // The first tensor falls, so that old amaxes have to leave; the second overflows; the third starts late.
    const Doubles fresh = {100.0 - step, step % 7 == 0 ? inf : 3 + step % 11, step < 50 ? 0.0 : 1.5};
    const bool is_left_out = step % 13 == 5;
    Doubles slots(kTensors * 4);
    for (size_t t = 0; t < kTensors; ++t) slots[4 * t] = fresh[t];
    cuda::next_fp8_scales(scales, inverses, {amaxes, next, limit}, put(numbers({kTensors, 4}, slots)),
                          put(scalar(is_left_out ? nan : 0.5)), stream);
    for (size_t t = 0; t < kTensors; ++t) {
      if (is_left_out || std::isinf(fresh[t])) continue;
      past[t].push_back(fresh[t]);
      if (past[t].size() > kSteps) past[t].pop_front();
      const double most = *std::ranges::max_element(past[t]);
      if (most > 0) want[t] = static_cast<double>(static_cast<float>(limits[t]) / static_cast<float>(most));
    }
    const Doubles got = to_doubles(scales.to_host()), inverse = to_doubles(inverses.to_host());
    for (size_t t = 0; t < kTensors; ++t) {
      ASSERT_EQ(got[4 * t], want[t]) << "step " << step << ", tensor " << t;
      ASSERT_EQ(inverse[4 * t], static_cast<double>(1.0f / static_cast<float>(want[t])));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaFp8,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(DType::f8e4m3, DType::f8e5m2)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", name(std::get<0>(info.param)),
                                              name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace ingot::test
