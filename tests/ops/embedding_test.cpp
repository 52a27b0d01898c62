#include "ingot/ops/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ingot/core/parallel.h"
#include "tests/reference/embedding.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

constexpr int64_t kV = 7, kB = 5, kT = 9, kPositions = 12, kFirst = 2, kN = kB * kT;  // every token repeats

struct EmbeddingCase {
  DType dtype;
  int64_t C;
  bool has_positions;
};

std::string embedding_case_name(const ::testing::TestParamInfo<EmbeddingCase>& info) {
  const EmbeddingCase& c = info.param;
  return fmt::format("{}_{}_{}", name(c.dtype), c.C, c.has_positions ? "positions" : "tokens");
}

class Embedding : public ::testing::TestWithParam<EmbeddingCase> {
 protected:
  Embedding() {
    for (int64_t n = 0; n < kN; ++n)
      ids[static_cast<size_t>(n)] =
          static_cast<int32_t>(random_word({.purpose = Purpose::kSample}, static_cast<uint64_t>(n)) % kV);
  }

  EmbeddingCase c = GetParam();
  Stream stream;
  std::vector<int32_t> ids = std::vector<int32_t>(kN);
  Tensor tokens{ids.data(), DType::i32, {kN}};
  Buffer wte = random_tensor(c.dtype, {kV, c.C}, 1), positions = random_tensor(c.dtype, {kPositions, c.C}, 2);
  Tensor wpe = c.has_positions ? positions.tensor() : Tensor{};
  Buffer out{c.dtype, {kN, c.C}}, d_out = random_tensor(c.dtype, {kN, c.C}, 3);
  Buffer d_wte = random_tensor(DType::f32, {kV, c.C}, 4),
         d_positions = random_tensor(DType::f32, {kPositions, c.C}, 5);
  Tensor d_wpe = c.has_positions ? d_positions.tensor() : Tensor{};

  double loss(const Doubles& wte_values, const Doubles& wpe_values) {
    return dot(embedding_reference(ids, wte_values, wpe_values, static_cast<size_t>(c.C), kT, kFirst),
               to_doubles(d_out));
  }
  Doubles wpe_values() { return c.has_positions ? to_doubles(wpe) : Doubles{}; }
};

TEST_P(Embedding, ForwardMatchesReference) {
  embedding_forward(out, tokens, whole_table(wte), wpe, kT, kFirst, stream);
  const Doubles want =
      embedding_reference(ids, to_doubles(wte), wpe_values(), static_cast<size_t>(c.C), kT, kFirst);
  expect_close(out, want, c.has_positions ? unit_roundoff(c.dtype) : 0.0, "out");
}

// The gradients are not zero before the `+=`. Each has at most kN additions.
TEST_P(Embedding, BackwardAccumulatesTheCentralDifferences) {
  Doubles want = to_doubles(d_wte), want_positions = to_doubles(d_positions);
  const Doubles by_token =
      central_differences([&](const Doubles& v) { return loss(v, wpe_values()); }, to_doubles(wte));
  for (size_t i = 0; i < want.size(); ++i) want[i] += by_token[i];
  if (c.has_positions) {
    const Doubles by_position =
        central_differences([&](const Doubles& v) { return loss(to_doubles(wte), v); }, wpe_values());
    for (size_t i = 0; i < by_position.size(); ++i) want_positions[i] += by_position[i];
  }
  embedding_backward(whole_table(d_wte), d_wpe, d_out, tokens, kT, kFirst, stream);
  const double rounding = kN * unit_roundoff(DType::f32), differences = 1e-7;
  expect_close(d_wte, want, rounding + differences, "d_wte", 4);
  expect_close(d_positions, want_positions, rounding + differences, "d_wpe", 4);
}

// Row slices of the table add up bit-identically to the whole table: all terms but one are zeros.
TEST_P(Embedding, ShardsOfTheTableAddUpToTheWhole) {
  embedding_forward(out, tokens, whole_table(wte), wpe, kT, kFirst, stream);
  const Doubles d_before = to_doubles(d_wte);
  embedding_backward(whole_table(d_wte), d_wpe, d_out, tokens, kT, kFirst, stream);
  const Doubles want_gradient = to_doubles(d_wte);
  Doubles sum(static_cast<size_t>(kN * c.C));
  assign(d_wte, d_before);
  for (const Range rows : {Range{0, 3}, Range{3, 4}, Range{4, kV}}) {
    Buffer partial(c.dtype, {kN, c.C});
    const auto part = [&](const Tensor& table) {
      return TableSlice{table.rows(rows.begin, rows.end), rows.begin, kV};
    };
    embedding_forward(partial, tokens, part(wte), rows.begin == 0 ? wpe : Tensor{}, kT, kFirst, stream);
    const Doubles values = to_doubles(partial);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    embedding_backward(part(d_wte), {}, d_out, tokens, kT, kFirst, stream);
  }
  Buffer rounded(c.dtype, {kN, c.C});
  assign(rounded, sum);
  EXPECT_EQ(to_doubles(rounded), to_doubles(out));
  EXPECT_EQ(to_doubles(d_wte), want_gradient);
}

TEST_P(Embedding, BackwardDoesNotDependOnTheNumberOfThreads) {
  const int threads = num_threads();
  const Doubles wte_before = to_doubles(d_wte), positions_before = to_doubles(d_positions);
  embedding_backward(whole_table(d_wte), d_wpe, d_out, tokens, kT, kFirst, stream);
  const Doubles want = to_doubles(d_wte), want_positions = to_doubles(d_positions);
  for (int n : {1, 2, 5}) {
    assign(d_wte, wte_before);
    assign(d_positions, positions_before);
    set_num_threads(n);
    embedding_backward(whole_table(d_wte), d_wpe, d_out, tokens, kT, kFirst, stream);
    EXPECT_EQ(to_doubles(d_wte), want) << n << " threads";
    EXPECT_EQ(to_doubles(d_positions), want_positions) << n << " threads";
  }
  set_num_threads(threads);
}

std::vector<EmbeddingCase> embedding_cases() {
  std::vector<EmbeddingCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t C : {1, 31, 32, 33, 257})
      for (bool has_positions : {true, false}) all.push_back({dtype, C, has_positions});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Embedding, ::testing::ValuesIn(embedding_cases()), embedding_case_name);

class EmbeddingErrors : public ::testing::Test {
 protected:
  Stream stream;
  Buffer wte = zeros(DType::f32, {5, 8}), wpe = zeros(DType::f32, {4, 8}), out = zeros(DType::f32, {3, 8});
  std::vector<int32_t> ids = {0, 4, 5};
  Tensor tokens{ids.data(), DType::i32, {3}};
};

TEST_F(EmbeddingErrors, NameATokenOutsideTheVocabulary) {
  for (int32_t bad : {5, -1}) {
    ids[2] = bad;
    for (bool is_forward : {true, false}) {
      EXPECT_THAT(
          data_error([&] {
            if (is_forward)
              embedding_forward(out, tokens, whole_table(wte), {}, 3, 0, stream);
            else
              embedding_backward(whole_table(wte), {}, out, tokens, 3, 0, stream);
          }),
          ::testing::HasSubstr(fmt::format("token {} at index 2 is outside the vocabulary of 5", bad)));
    }
  }
}

TEST_F(EmbeddingErrors, NameAPositionPastTheLast) {
  ids[2] = 0;
  EXPECT_NO_THROW(embedding_forward(out, tokens, whole_table(wte), wpe, 3, 1, stream));
  EXPECT_EQ(error_of([&] { embedding_forward(out, tokens, whole_table(wte), wpe, 3, 2, stream); }),
            "embedding_forward: positions [2, 5) must lie in [0, 4), the learned positions");
}

}  // namespace
}  // namespace ingot::test
