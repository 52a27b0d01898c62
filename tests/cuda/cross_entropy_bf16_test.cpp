#include "ingot/ops/cross_entropy_bf16.h"

#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

class CudaCrossEntropyBf16 : public ::testing::Test, protected OnCuda {};

// The device makes the CPU's error step by step; where an exponential rounds to the other
// side, the sum moves by a unit.
TEST_F(CudaCrossEntropyBf16, HasTheErrorOfTheCpu) {
  const int64_t N = 5, V = 643, Vp = 648;
  const CrossEntropyConfig config{.vocab = V, .grad_scale = 0.25f};
  const Buffer logits = random_tensor(DType::f32, {N, Vp}, 1, 4.0),
               targets = integers({3, 642, kIgnoreIndex, 0, 20});
  const OnDevice logits_there = put(logits), targets_there = put(targets);
  const OnDevice losses_there = result(DType::f32, {N}), correct_there = result(DType::u8, {N}),
                 d_there = result(DType::bf16, {N, Vp});
  cross_entropy_in_bf16(losses_there, correct_there, d_there, logits_there, targets_there, config, stream);
  Buffer losses(DType::f32, {N}), correct(DType::u8, {N}), d(DType::bf16, {N, Vp});
  Stream cpu;
  cross_entropy_in_bf16(losses, correct, d, logits, targets, config, cpu);
  expect_close(losses_there.to_host(), to_doubles(losses), 4 * unit_roundoff(DType::bf16), "losses");
  expect_same_bits(correct_there.to_host(), correct, "correct");
  expect_close(d_there.to_host(), to_doubles(d), 4 * unit_roundoff(DType::bf16), "d_logits", 0.25);
}

// A bf16 sum of equal terms stops at 256 of them.
TEST_F(CudaCrossEntropyBf16, TheSumStopsAt256EqualTerms) {
  const int64_t V = 1024;
  Buffer logits(DType::f32, {1, V});
  assign(logits, Doubles(static_cast<size_t>(V), 1.5));
  const OnDevice there = put(logits), targets = put(integers({17})), losses = result(DType::f32, {1});
  cross_entropy_in_bf16(losses, {}, {}, there, targets, {.vocab = V}, stream);
  EXPECT_EQ(to_doubles(losses.to_host())[0], static_cast<double>(static_cast<float>(bf16(std::log(256.0f)))));
}

TEST_F(CudaCrossEntropyBf16, RoundsLogitsAsOnTheCpu) {
  for (int64_t n : {1, 33, 2048}) {
    const Buffer x = random_tensor(DType::f32, {n}, 1, 4.0);
    const OnDevice there = put(x);
    round_to_bf16(there, stream);
    Stream cpu;
    round_to_bf16(x, cpu);
    expect_same_bits(there.to_host(), x, "x");
  }
}

}  // namespace
}  // namespace ingot::test
