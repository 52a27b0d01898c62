#include "ingot/ops/cross_entropy_bf16.h"

#include <gtest/gtest.h>

#include "tests/reference/cross_entropy.h"

namespace ingot::test {
namespace {

double to_bf16(double x) { return static_cast<double>(static_cast<float>(bf16(static_cast<float>(x)))); }

struct Loss {
  Loss(int64_t rows, int64_t vocab, int64_t columns) : N(rows), V(vocab), Vp(columns) {}

  int64_t N, V, Vp;
  Buffer logits{DType::f32, {N, Vp}}, losses{DType::f32, {N}}, d{DType::bf16, {N, Vp}};
  std::vector<int32_t> ids;
  CrossEntropyConfig config{.vocab = V, .grad_scale = 0.25f};
  Stream stream;

  Tensor targets() { return Tensor(ids.data(), DType::i32, {N}); }
};

TEST(CrossEntropyBf16, EveryStepIsRounded) {
  Loss loss(5, 67, 70);
  loss.ids = {3, 66, kIgnoreIndex, 0, 20};
  assign(loss.logits, to_doubles(random_tensor(DType::f32, {5, 70}, 1, 4.0)));
  const Doubles x = to_doubles(loss.logits);
  cross_entropy_in_bf16(loss.losses, {}, loss.d, loss.logits, loss.targets(), loss.config, loss.stream);
  const Doubles got = to_doubles(loss.losses), d = to_doubles(loss.d);
  for (size_t n = 0; n < 5; ++n) {
    if (loss.ids[n] == kIgnoreIndex) {
      EXPECT_EQ(got[n], 0);
      continue;
    }
    Doubles z, e;
    for (size_t j = 0; j < 67; ++j) z.push_back(to_bf16(x[n * 70 + j]));
    const double z_max = *std::max_element(z.begin(), z.end());
    double sum = 0;
    for (double v : z) {
      e.push_back(to_bf16(std::exp(to_bf16(v - z_max))));
      sum = to_bf16(sum + e.back());
    }
    const size_t target = static_cast<size_t>(loss.ids[n]);
    const double lse = to_bf16(z_max + to_bf16(std::log(sum)));
    // The sum moves by a unit where the exponentials in f32 and in double round to different bf16 numbers.
    EXPECT_NEAR(got[n], to_bf16(lse - z[target]), 4 * 0x1p-8 * std::abs(lse)) << n;
    for (size_t j = 0; j < 70; ++j) {
      const double p = j < 67 ? to_bf16(e[j] / sum) : 0;
      const double want = p - (j == target);
      EXPECT_NEAR(d[n * 70 + j], 0.25 * want, 0.25 * 4 * 0x1p-8 * std::max(std::abs(want), 0x1p-9)) << j;
    }
  }
}

// Over a vocabulary of 4096 equal logits the sum stops at 256, and so the loss counts only that many.
TEST(CrossEntropyBf16, TheSumStopsGrowingAt256EqualTerms) {
  Loss loss(1, 4096, 4096);
  loss.ids = {17};
  assign(loss.logits, Doubles(4096, 1.5));
  cross_entropy_in_bf16(loss.losses, {}, loss.d, loss.logits, loss.targets(), loss.config, loss.stream);
  EXPECT_NEAR(to_doubles(loss.losses)[0], std::log(256.0), 4 * 0x1p-8 * std::log(256.0));
  double total = 0;
  for (double v : to_doubles(loss.d)) total += v / 0.25;
  EXPECT_NEAR(total, 4096 / 256 - 1, 0.01);
}

// Rounding only the logits moves the loss a little, in either direction.
TEST(CrossEntropyBf16, RoundedLogitsBarelyChangeTheLoss) {
  Loss loss(64, 4096, 4096);
  for (int32_t n = 0; n < 64; ++n) loss.ids.push_back(n * 61);
  assign(loss.logits, to_doubles(random_tensor(DType::f32, {64, 4096}, 2, 2.0)));
  const Doubles want = cross_entropy_reference(to_doubles(loss.logits), loss.ids, loss.config);
  round_to_bf16(loss.logits, loss.stream);
  for (double z : to_doubles(loss.logits)) ASSERT_EQ(z, to_bf16(z));
  cross_entropy(loss.losses, {}, {}, loss.logits, loss.targets(), loss.config, loss.stream);
  const Doubles got = to_doubles(loss.losses);
  double difference = 0;
  for (size_t n = 0; n < 64; ++n) difference += (got[n] - want[n]) / 64;
  EXPECT_LT(std::abs(difference), 8 * 0x1p-8 / 8) << "logits up to 8, a mean of 64";
}

}  // namespace
}  // namespace ingot::test
