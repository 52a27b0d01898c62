// Casts, dropout and additions on a device are bit-identical to the CPU's on the same inputs.
#include "ingot/ops/accumulate.h"
#include "ingot/ops/bf16_masters.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/loss/kahan.h"
#include "ingot/ops/loss_sums.h"
#include "ingot/ops/matrix_shard.h"
#include "ingot/ops/residual_add.h"
#include "ingot/ops/swap_tensors.h"
#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

TEST(CudaCast, RoundsAsOnTheCpu) {
  Stream stream = cuda::make_stream(), cpu;
  for (DType from : {DType::f32, DType::bf16, DType::f16})
    for (DType to : {DType::f32, DType::bf16, DType::f16})
      for (int64_t n : {1, 31, 4096}) {
        Buffer x = random_tensor(from, {n}, 1);
        if (n > 1)  // ties and subnormals of both, f16's largest, and what becomes infinite
          assign(x.tensor().rows(0, 12),
                 {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1e-40, -1e30, 1 + 0x1p-11, 1 + 3 * 0x1p-11, 0x1p-25,
                  3 * 0x1p-25, -0x1.8p-16, 65504, 65519, -65520});
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
  for (DType to : {DType::bf16, DType::f16}) {
    const OnDevice there(x, stream), y(to, {8}, stream), back(DType::f32, {8}, stream);
    cast(y, there, stream);
    cast(back, y, stream);
    for (const OnDevice* nans : {&y, &back})
      for (double v : to_doubles(nans->to_host())) EXPECT_TRUE(std::isnan(v));
  }
}

// With a place, the step of the key and the index of the first token come from memory.
TEST(CudaDropout, ReadsStepAndTokenFromItsPlace) {
  Stream stream = cuda::make_stream(), cpu;
  const auto key = [](uint64_t step) {
    return RandomKey{.seed = 7, .purpose = Purpose::kDropout, .stream = 3, .step = step};
  };
  const OnDevice place(DType::i64, {kDropoutPlace}, stream);
  for (int64_t columns : {8, 5})
    for (int64_t token : {int64_t{0}, int64_t{3}, int64_t{1} << 33}) {
      const Buffer x = random_tensor(DType::f32, {6, columns}, 1);
      const OnDevice there(x, stream), y(DType::f32, {6, columns}, stream);
      Buffer want(DType::f32, {6, columns});
      const uint64_t own = static_cast<uint64_t>(2 * columns), shift = static_cast<uint64_t>(token * columns);
      set_dropout_place(place, 11, token, 0, stream);
      dropout(y, there, 0.3f, key(0), own, stream, place);
      dropout(want, x, 0.3f, key(11), own + shift, cpu);
      expect_same_bits(y.to_host(), want, "y");
    }
}

TEST(CudaDropout, DropsTheElementsThatTheCpuDrops) {
  Stream stream = cuda::make_stream(), cpu;
  const RandomKey key{.seed = 7, .purpose = Purpose::kDropout, .stream = 3, .step = 11};
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
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

TEST(CudaResidualAdd, EqualsTheCpu) {
  Stream stream = cuda::make_stream(), cpu;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t n : {1, 31, 2048}) {
      const Buffer x = random_tensor(dtype, {n}, 1), residual = random_tensor(dtype, {n}, 2);
      const OnDevice x_there(x, stream), residual_there(residual, stream), sum(dtype, {n}, stream);
      Buffer want(dtype, {n});
      residual_add(sum, x_there, residual_there, stream);
      residual_add(want, x, residual, cpu);
      expect_same_bits(sum.to_host(), want, "sum");
    }
}

TEST(CudaAccumulate, EqualsTheCpu) {
  Stream stream = cuda::make_stream(), cpu;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t n : {1, 31, 2048}) {
      const Buffer from = random_tensor(dtype, {n}, 1), to = random_tensor(DType::f32, {n}, 2);
      const OnDevice from_there(from, stream), to_there(to, stream);
      accumulate(to_there, from_there, stream);
      accumulate(to, from, cpu);
      expect_same_bits(to_there.to_host(), to, "to");
    }
}

// The residual carries what three roundings lose; a number that overflows leaves none.
TEST(CudaCastWithFeedback, EqualsTheCpu) {
  Stream stream = cuda::make_stream(), cpu;
  for (DType dtype : {DType::bf16, DType::f16})
    for (int64_t n : {1, 31, 2048}) {
      Buffer residual = zeros(DType::f32, {n});
      const Buffer to(dtype, {n});
      const OnDevice residual_there(residual, stream), to_there(dtype, {n}, stream);
      for (uint32_t i = 0; i < 3; ++i) {
        Buffer from = random_tensor(DType::f32, {n}, 1 + i);
        if (n > 1 && i == 1) assign(from.tensor().rows(0, 4), {65520, -1e30, 1e-40, 3.4e38});
        const OnDevice from_there(from, stream);
        cast_with_feedback(to_there, from_there, residual_there, stream);
        cast_with_feedback(to, from, residual, cpu);
        expect_same_bits(to_there.to_host(), to, "rounded");
        expect_same_bits(residual_there.to_host(), residual, "residual");
      }
    }
}

TEST(CudaKahan, KeepsTheRoundingError) {
  Stream stream = cuda::make_stream(), cpu;
  for (int64_t n : {1, 2048}) {
    Buffer sum = random_tensor(DType::f32, {n}, 1, 1e4), lost = zeros(DType::f32, {n});
    const OnDevice sum_there(sum, stream), lost_there(lost, stream);
    for (uint32_t i = 0; i < 3; ++i) {
      const Buffer x = random_tensor(DType::f32, {n}, 2 + i, 1e-3);
      const OnDevice x_there(x, stream);
      kahan_add(sum_there, lost_there, x_there, stream);
      kahan_add(sum, lost, x, cpu);
      synchronize(stream);
    }
    expect_same_bits(sum_there.to_host(), sum, "sum");
    expect_same_bits(lost_there.to_host(), lost, "lost");
  }
}

TEST(CudaSwap, ExchangesTheContents) {
  Stream stream = cuda::make_stream();
  const Buffer a = random_tensor(DType::f32, {1000}, 1), b = random_tensor(DType::f32, {1000}, 2);
  const OnDevice a_there(a, stream), b_there(b, stream);
  swap(a_there, b_there, stream);
  expect_same_bits(a_there.to_host(), b, "a");
  expect_same_bits(b_there.to_host(), a, "b");
}

TEST(CudaBf16Masters, ExpandAndCollapseAsOnTheCpu) {
  Stream stream = cuda::make_stream(), cpu;
  for (bool has_tail : {false, true}) {
    Buffer numbers = random_tensor(DType::f32, {1000}, 1), w(DType::bf16, {1000}), tail(DType::u16, {1000});
    const OnDevice numbers_there(numbers, stream), w_there(DType::bf16, {1000}, stream);
    const OnDevice tail_there(DType::u16, {1000}, stream);
    const auto optional_tail = [&](const Tensor& t) { return has_tail ? t : Tensor{}; };
    collapse_masters(w_there, optional_tail(tail_there), numbers_there, stream);
    collapse_masters(w, optional_tail(tail), numbers, cpu);
    expect_same_bits(w_there.to_host(), w, "w");
    if (has_tail) expect_same_bits(tail_there.to_host(), tail, "tail");
    expect_same_bits(numbers_there.to_host(), numbers, "cleared");
    expand_masters(numbers_there, w_there, optional_tail(tail_there), stream);
    expand_masters(numbers, w, optional_tail(tail), cpu);
    expect_same_bits(numbers_there.to_host(), numbers, "numbers");
  }
}

TEST(CudaLossSums, AddsTheRowsThatCount) {
  Stream stream = cuda::make_stream(), cpu;
  for (int64_t n : {1, 255, 3000}) {
    const Buffer losses = random_tensor(DType::f32, {n}, 1);
    Buffer is_correct(DType::u8, {n}), targets(DType::i32, {n}), want(DType::u8, {kLossTotalsBytes});
    for (int64_t i = 0; i < n; ++i) {
      is_correct.tensor().as<uint8_t>()[i] = i % 3 == 0;
      targets.tensor().as<int32_t>()[i] = i % 7 == 1 ? kIgnoreIndex : static_cast<int32_t>(i);
    }
    const OnDevice losses_there(losses, stream), targets_there(targets, stream);
    const OnDevice correct_there(is_correct, stream), sums(DType::u8, {kLossTotalsBytes}, stream);
    for (bool counts_correct : {true, false}) {
      const auto flags = [&](const Tensor& t) { return counts_correct ? t : Tensor{}; };
      loss_sums(sums, losses_there, flags(correct_there), targets_there, stream);
      loss_sums(want, losses, flags(is_correct), targets, cpu);
      const LossTotals got = read_loss_sums(sums.to_host()), expected = read_loss_sums(want);
      EXPECT_NEAR(got.loss, expected.loss, 1e-12 * static_cast<double>(n));
      EXPECT_EQ(got.counted, expected.counted);
      EXPECT_EQ(got.correct, expected.correct);
    }
  }
}

// Rectangles whose rows can be read 16 bytes at a time, and others; ranges of whole rows are one run.
TEST(CudaMatrixShard, CopiesAsOnTheCpu) {
  Stream stream = cuda::make_stream(), cpu;
  const std::vector<std::vector<Rect>> cuts = {{{0, 1, 16, 32}, {1, 20, 0, 48}, {21, 1, 0, 8}},
                                               {{3, 9, 8, 24}},
                                               {{0, 1, 5, 43}, {1, 3, 0, 48}, {4, 1, 0, 7}},
                                               {{2, 5, 3, 11}, {0, 0, 0, 0}, {30, 2, 0, 48}},
                                               {}};
  for (const std::vector<Rect>& rects : cuts) {
    int64_t n = 0;
    for (const Rect& rect : rects) n += rect.elements();
    const Buffer matrix = random_tensor(DType::f32, {32, 48}, 1), shard = random_tensor(DType::f32, {n}, 2);
    const OnDevice matrix_there(matrix, stream), shard_there(shard, stream);
    put_shard(matrix_there, shard_there, rects, stream);
    put_shard(matrix, shard, rects, cpu);
    expect_same_bits(matrix_there.to_host(), matrix, "put");
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const OnDevice cut_there(dtype, {n}, stream);
      const Buffer want(dtype, {n});
      cut_shard(cut_there, matrix_there, rects, stream);
      cut_shard(want, matrix, rects, cpu);
      expect_same_bits(cut_there.to_host(), want, fmt::format("cut to {}", name(dtype)));
    }
  }
}

}  // namespace
}  // namespace ingot::test
