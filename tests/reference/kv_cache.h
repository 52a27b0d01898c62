// A small cache of keys and values with tokens to append and to compute, and the fp64 results.
#pragma once

#include <cstring>

#include "tests/reference/attention.h"
#include "tests/reference/head_tensor.h"

namespace ingot::test {

struct DecodeCase {
  const char* name;
  DType dtype;
  int64_t H, K, D, positions;
  std::vector<int32_t> places;  // slot * positions + position; -1 stands for padding
  int64_t window = 0;
};

inline const std::vector<DecodeCase>& decode_cases() {
  // Positions on both sides of the slices of 128 keys, of the device, and of 512, of the CPU.
  static const std::vector<DecodeCase> cases{
      {"one", DType::f32, 1, 1, 8, 4, {0}},
      {"grouped", DType::f32, 6, 2, 16, 40, {39, 40, 97}},
      {"odd_dims", DType::f32, 2, 1, 33, 20, {7, 25}},
      {"long_heads", DType::f32, 1, 1, 200, 9, {8}},
      {"slices", DType::f32, 2, 1, 16, 300, {127, 428, 899, -1}},
      {"cpu_slices", DType::f32, 2, 1, 16, 1300, {600, 2500, 1100}},
      {"many_heads", DType::bf16, 10, 2, 64, 140, {130, 150, -1, 400}},
      {"long_heads", DType::bf16, 2, 2, 128, 20, {19, 25}},
      {"odd_dims", DType::bf16, 1, 1, 20, 20, {3, -1}},
      {"half", DType::f16, 4, 1, 32, 33, {32, 33, 70}},
      {"window", DType::f32, 2, 1, 16, 300, {5, 305, 890, 899, -1}, 10},
      {"long_window", DType::bf16, 4, 2, 16, 1200, {1100, 1500}, 700},
  };
  return cases;
}

inline std::string decode_case_name(const ::testing::TestParamInfo<DecodeCase>& info) {
  return fmt::format("{}_{}", info.param.name, name(info.param.dtype));
}

// The tensors of a case. q, k and v of the tokens lie in packed rows, as the model has them.
struct DecodeProblem {
  explicit DecodeProblem(const DecodeCase& given)
      : c(given),
        N(std::ssize(c.places)),
        slots(*std::ranges::max_element(c.places) / c.positions + 1),
        rows(random_tensor(c.dtype, {1, N, (c.H + 2 * c.K) * c.D}, 1)),
        k(random_tensor(c.dtype, {slots, c.positions, c.K, c.D}, 2)),
        v(random_tensor(c.dtype, {slots, c.positions, c.K, c.D}, 3)) {
    for (const int32_t place : c.places)
      if (place >= 0) longest = std::max(longest, place % c.positions + 1);
  }
  Tensor part(const Tensor& t, int64_t first, int64_t heads) const {
    return t.columns(first * c.D, (first + heads) * c.D).split_last(heads, c.D);
  }
  Tensor queries(const Tensor& t) const { return part(t, 0, c.H); }
  Tensor keys(const Tensor& t) const { return part(t, c.H, c.K); }
  Tensor values(const Tensor& t) const { return part(t, c.H + c.K, c.K); }
  AttentionShape shape() const { return {N, 1, longest, c.H, c.K, c.D}; }

  // Returns the cache of keys (or values) after the tokens have been appended.
  static Doubles appended(const Buffer& cache, const Tensor& tokens, const std::vector<int32_t>& places) {
    Doubles all = to_doubles(cache);
    const Doubles added = gather(tokens);
    const size_t row = added.size() / places.size();
    for (size_t n = 0; n < places.size(); ++n)
      for (size_t i = 0; places[n] >= 0 && i < row; ++i)
        all[static_cast<size_t>(places[n]) * row + i] = added[n * row + i];
    return all;
  }
  // Returns out (N, H, D) over such caches.
  Doubles want() const {
    const Doubles all_k = appended(k, keys(rows), c.places), all_v = appended(v, values(rows), c.places);
    const Doubles q = gather(queries(rows));
    Doubles out;
    for (size_t n = 0; n < c.places.size(); ++n) {
      const auto width = static_cast<size_t>(c.H * c.D);
      if (c.places[n] < 0) {
        out.insert(out.end(), width, 0.0);
        continue;
      }
      const int64_t S = c.places[n] % c.positions + 1, first = c.places[n] / c.positions * c.positions;
      const auto of_slot = [&](const Doubles& all) {
        const auto begin = all.begin() + first * c.K * c.D;
        return Doubles(begin, begin + S * c.K * c.D);
      };
      const AttentionCase single{{1, 1, S, c.H, c.K, c.D},   true, {},
                                 static_cast<double>(scale), {},   c.window};
      const auto from = q.begin() + static_cast<ptrdiff_t>(n * width);
      const Doubles own_q(from, from + static_cast<ptrdiff_t>(width));
      const Doubles own = attention_reference(single, own_q, of_slot(all_k), of_slot(all_v)).out;
      out.insert(out.end(), own.begin(), own.end());
    }
    return out;
  }
  // As of attention: f32 sums over the keys, exponentials of scores up to about 10, a final rounding.
  double tolerance() const {
    return 4 * unit_roundoff(c.dtype) +
           64 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(longest));
  }

  DecodeCase c;
  int64_t N, slots, longest = 1;
  float scale = 1 / std::sqrt(static_cast<float>(c.D));
  Buffer rows, k, v;
};

// Expects that the bits of a token's result depend on no other token of the call. `run` computes a
// problem's out (1, N, H, D).
template <typename Run>
void expect_independent_tokens(const DecodeCase& c, const Run& run) {
  DecodeProblem all(c);
  const Buffer together = run(all);
  const size_t row_bytes = together.tensor().bytes() / static_cast<size_t>(all.N);
  for (size_t n = 0; n < c.places.size(); ++n) {
    DecodeProblem alone(c);
    std::ranges::fill(alone.c.places, -1);
    alone.c.places[n] = c.places[n];
    alone.longest = std::max<int64_t>(1, c.places[n] % c.positions + 1);
    const Buffer got = run(alone);
    const auto at = [&](const Buffer& b) {
      return static_cast<const char*>(b.tensor().data) + n * row_bytes;
    };
    EXPECT_EQ(std::memcmp(at(got), at(together), row_bytes), 0) << n;
  }
}

}  // namespace ingot::test
