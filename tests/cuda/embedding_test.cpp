#include "ingot/ops/embedding.h"

#include "tests/cuda/on_device.h"
#include "tests/reference/embedding.h"

namespace ingot::test {
namespace {

struct EmbeddingCase {
  DType dtype;
  int64_t sequences, T, C, V;
};

std::string embedding_case_name(const ::testing::TestParamInfo<EmbeddingCase>& info) {
  const EmbeddingCase& c = info.param;
  return fmt::format("{}_{}x{}_C{}_V{}", name(c.dtype), c.sequences, c.T, c.C, c.V);
}

class CudaEmbedding : public ::testing::TestWithParam<EmbeddingCase>, protected OnCuda {
 protected:
  EmbeddingCase c = GetParam();
  int64_t N = c.sequences * c.T;
  // Half of the rows are one token, like the space in text; the last two rows of the vocabulary also occur.
  std::vector<int32_t> tokens = [this] {
    std::vector<int32_t> values;
    for (int64_t n = 0; n < N; ++n)
      values.push_back(static_cast<int32_t>(n % 2 == 0 ? 3 % c.V : c.V - 1 - (n * 7 / 2) % c.V));
    return values;
  }();
  Buffer wte = random_tensor(c.dtype, {c.V, c.C}, 1), wpe = random_tensor(c.dtype, {c.T + 2, c.C}, 2);
  Buffer d_out = random_tensor(c.dtype, {N, c.C}, 3);
  OnDevice tokens_there = put(integers(tokens)), wte_there = put(wte), wpe_there = put(wpe);
  OnDevice d_out_there = put(d_out);
};

TEST_P(CudaEmbedding, ForwardEqualsTheCpu) {
  Stream cpu;
  for (bool has_positions : {true, false}) {
    const OnDevice out = result(c.dtype, {N, c.C});
    Buffer want(c.dtype, {N, c.C});
    embedding_forward(out, tokens_there, whole_table(wte_there),
                      has_positions ? wpe_there.tensor() : Tensor{}, c.T, 2, stream);
    embedding_forward(want, integers(tokens), whole_table(wte), has_positions ? wpe.tensor() : Tensor{}, c.T,
                      2, cpu);
    expect_same_bits(out.to_host(), want, "out");
  }
}

TEST_P(CudaEmbedding, BackwardEqualsTheCpu) {
  Stream cpu;
  Buffer d_wte = random_tensor(DType::f32, {c.V, c.C}, 4),
         d_wpe = random_tensor(DType::f32, {c.T + 2, c.C}, 5);
  const OnDevice d_wte_there = put(d_wte), d_wpe_there = put(d_wpe);
  embedding_backward(whole_table(d_wte_there), d_wpe_there, d_out_there, tokens_there, c.T, 2, stream);
  embedding_backward(whole_table(d_wte), d_wpe, d_out, integers(tokens), c.T, 2, cpu);
  expect_same_bits(d_wte_there.to_host(), d_wte, "d_wte");  // both add in order of n
  const double spread = std::sqrt(static_cast<double>(c.sequences));
  expect_close(d_wpe_there.to_host(), to_doubles(d_wpe), 4 * spread * unit_roundoff(DType::f32), "d_wpe",
               spread);
}

TEST_P(CudaEmbedding, PartOfTheTableEqualsTheCpu) {
  Stream cpu;
  const int64_t first = c.V / 2;
  const OnDevice out = result(c.dtype, {N, c.C});
  Buffer want(c.dtype, {N, c.C});
  const auto part = [&](const Tensor& t) {
    return TableSlice{.rows = t.rows(first, c.V), .first = first, .V = c.V};
  };
  embedding_forward(out, tokens_there, part(wte_there), {}, c.T, 0, stream);
  embedding_forward(want, integers(tokens), part(wte), {}, c.T, 0, cpu);
  expect_same_bits(out.to_host(), want, "out");
  Buffer d_wte = random_tensor(DType::f32, {c.V, c.C}, 4);
  const OnDevice d_wte_there = put(d_wte);
  embedding_backward(part(d_wte_there), {}, d_out_there, tokens_there, c.T, 0, stream);
  embedding_backward(part(d_wte), {}, d_out, integers(tokens), c.T, 0, cpu);
  expect_same_bits(d_wte_there.to_host(), d_wte, "d_wte");
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaEmbedding,
                         ::testing::Values(EmbeddingCase{DType::f32, 2, 5, 33, 7},
                                           EmbeddingCase{DType::f32, 3, 100, 40, 600},
                                           EmbeddingCase{DType::bf16, 4, 300, 264, 1000},
                                           EmbeddingCase{DType::bf16, 1, 3, 8, 5},
                                           EmbeddingCase{DType::f16, 2, 40, 24, 11}),
                         embedding_case_name);

// A warp owns rows 3, 2115 and 4227. It turns from one to the other, with runs longer than the rows that it
// reads ahead.
TEST(CudaEmbeddingTokens, RowsOfOneWarpAreAddedInOrder) {
  Stream stream = cuda::make_stream(), cpu;
  constexpr int64_t kV = 4300, kN = 1500, kC = 16;
  std::vector<int32_t> tokens;
  for (int64_t n = 0; n < kN; ++n)
    tokens.push_back(static_cast<int32_t>(n % 40 < 19 ? 3 : n % 5 == 0 ? n % kV : 3 + 2112 * (n % 3)));
  const Buffer d_out = random_tensor(DType::bf16, {kN, kC}, 1);
  Buffer d_wte = random_tensor(DType::f32, {kV, kC}, 2);
  const OnDevice there(d_wte, stream), d_out_there(d_out, stream), tokens_there(integers(tokens), stream);
  embedding_backward(whole_table(there), {}, d_out_there, tokens_there, kN, 0, stream);
  embedding_backward(whole_table(d_wte), {}, d_out, integers(tokens), kN, 0, cpu);
  expect_same_bits(there.to_host(), d_wte, "d_wte");
}

TEST(CudaEmbeddingTokens, OutsideTheVocabularyGiveNanAndNoGradient) {
  Stream stream = cuda::make_stream();
  const Buffer wte = random_tensor(DType::f32, {4, 8}, 1);
  const OnDevice tokens(integers({1, 4, -1}), stream), there(wte, stream), out(DType::f32, {3, 8}, stream);
  embedding_forward(out, tokens, whole_table(there), {}, 3, 0, stream);
  const Doubles got = to_doubles(out.to_host());
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(got[i], to_doubles(wte)[8 + i]);
    EXPECT_TRUE(std::isnan(got[8 + i]) && std::isnan(got[16 + i]));
  }
  const OnDevice d_wte(zeros(DType::f32, {4, 8}), stream),
      d_out(random_tensor(DType::f32, {3, 8}, 2), stream);
  embedding_backward(whole_table(d_wte), {}, d_out, tokens, 3, 0, stream);
  const Doubles gradient = to_doubles(d_wte.to_host());
  for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i] != 0, i / 8 == 1);
}

}  // namespace
}  // namespace ingot::test
