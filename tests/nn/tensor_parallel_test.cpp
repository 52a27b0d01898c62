// The shards of tensor-parallel ranks hold every logical element once, with its value on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/nn/small_model.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

ModelConfig llama() {
  ModelConfig c = {.layers = 2,
                   .heads = 8,
                   .kv_heads = 4,
                   .head_dim = 6,
                   .width = 24,
                   .ffn = 40,
                   .context = 8,
                   .vocab = 61};
  return c.resolved();
}

ModelConfig gpt2() {
  ModelConfig c = test::gpt2_style(llama());
  c.kv_heads = 8;
  c.is_tied = false;
  return c.resolved();
}

TEST(TensorParallel, RanksHoldEveryElementOnceWithItsInitialValue) {
  for (const ModelConfig& config : {llama(), gpt2()}) {
    const Transformer whole(config, DType::f32);
    ResidentStore whole_store(whole.params(), DType::f32);
    init_params(whole_store, 11);
    for (int count : {1, 2, 4}) {
      std::vector<std::vector<int>> holders;  // number of ranks that hold each element, per parameter
      for (const ParamSpec& spec : whole.params().specs())
        holders.emplace_back(static_cast<size_t>(spec.elements()));
      for (int rank = 0; rank < count; ++rank) {
        const Transformer part(config, DType::f32, {}, {}, {.rank = rank, .count = count});
        ResidentStore store(part.params(), DType::f32);
        init_params(store, 11);
        ASSERT_EQ(part.params().specs().size(), whole.params().specs().size());
        for (int p = 0; p < std::ssize(part.params().specs()); ++p) {
          const ParamSpec &spec = part.params()[p], &full = whole.params()[p];
          ASSERT_EQ(spec.name, full.name);
          ASSERT_EQ(spec.full_shape(), full.shape) << spec.name;
          const float *own = store.master(p).as<float>(), *want = whole_store.master(p).as<float>();
          int64_t next = 0;
          for_each_range(spec, [&](int64_t here, int64_t at, int64_t n) {
            EXPECT_EQ(here, next) << spec.name;
            EXPECT_TRUE(std::equal(own + here, own + here + n, want + at)) << spec.name << " from " << at;
            for (int64_t i = at; i < at + n; ++i) ++holders[static_cast<size_t>(p)][static_cast<size_t>(i)];
            next = here + n;
          });
          EXPECT_EQ(next, spec.elements()) << spec.name;
        }
      }
      for (int p = 0; p < std::ssize(holders); ++p) {
        const ParamSpec& spec = whole.params()[p];
        const bool is_replicated = spec.role == ParamRole::kNorm || spec.role == ParamRole::kPosition ||
                                   spec.name.ends_with("norm.bias") || spec.name.ends_with("proj.bias") ||
                                   spec.name.ends_with("down.bias");
        EXPECT_THAT(holders[static_cast<size_t>(p)], ::testing::Each(is_replicated ? count : 1)) << spec.name;
      }
    }
  }
}

// Two ranks hold each of the four heads of k and v, and one of the two counts it.
TEST(TensorParallel, NeighboursShareKvHeadsWhereThereAreFewerThanRanks) {
  ModelConfig config = llama();
  config.has_qkv_bias = true;
  const Transformer whole(config, DType::f32);
  constexpr int kRanks = 8;
  const int64_t D = config.head_dim, q_rows = config.heads * D;
  for (int p = 0; p < std::ssize(whole.params().specs()); ++p) {
    const ParamSpec& full = whole.params()[p];
    if (!full.name.starts_with("blocks.1.attention.qkv.")) continue;
    const int64_t C = full.is_vector() ? 1 : full.shape[1];
    std::vector<int> holders(static_cast<size_t>(full.elements()));
    int64_t counted = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Transformer part(config, DType::f32, {}, {}, {.rank = rank, .count = kRanks});
      const ParamSpec& spec = part.params()[p];
      EXPECT_EQ(spec.shape[0], 3 * D);
      EXPECT_EQ(spec.common_elements(), 2 * D * C);
      EXPECT_EQ(spec.copies(0, spec.elements()), rank % 2 == 0 ? 0 : 2 * D * C);
      EXPECT_EQ(spec.copies(0, D * C), 0);
      const ParamList& list = part.params();
      EXPECT_EQ(list[p].slice.rows[1].first, q_rows + rank / 2 * D);
      for_each_range(spec, [&](int64_t, int64_t at, int64_t n) {
        for (int64_t i = at; i < at + n; ++i) ++holders[static_cast<size_t>(i)];
      });
      counted += spec.elements() - spec.copies(0, spec.elements());
    }
    EXPECT_EQ(counted, full.elements());
    for (int64_t i = 0; i < full.elements(); ++i)
      ASSERT_EQ(holders[static_cast<size_t>(i)], i < q_rows * C ? 1 : 2) << full.name << " at " << i;
  }
}

TEST(TensorParallel, KnowsWhichParametersAreSharded) {
  const Transformer part(gpt2(), DType::f32, {}, {}, {.rank = 1, .count = 4});
  for (const ParamSpec& spec : part.params().specs())
    EXPECT_EQ(spec.is_sharded(), spec.elements() < spec.full_shape().elements()) << spec.name;
  const Transformer alone(gpt2(), DType::f32);
  for (const ParamSpec& spec : alone.params().specs()) EXPECT_FALSE(spec.is_sharded()) << spec.name;
}

// Each rank has 1 / count of the logical elements of every parameter that is sharded.
TEST(TensorParallel, DividesTheMatricesEquallyAmongTheRanks) {
  const ModelConfig config = llama();
  const auto elements = [&](int count) {
    int64_t total = 0;
    const Transformer part(config, DType::f32, {}, {}, {.rank = 0, .count = count});
    for (const ParamSpec& spec : part.params().specs())
      if (!spec.is_vector()) total += spec.elements();
    return total;
  };
  EXPECT_EQ(elements(1), 2 * elements(2));
  EXPECT_EQ(elements(1), 4 * elements(4));
}

std::string refusal(const ModelConfig& config, int count, const Fp8LinearConfig& fp8 = {}) {
  return usage_error([&] { Transformer(config, DType::f32, {}, fp8, {.rank = 0, .count = count}); });
}

TEST(TensorParallel, AnInvalidRankCountIsRefusedWithTheNearestValidOne) {
  EXPECT_EQ(refusal(llama(), 4), "no error");
  EXPECT_EQ(refusal(llama(), 8), "no error");  // two ranks for each kv-head
  EXPECT_THAT(
      refusal(llama(), 16),
      ::testing::AllOf(::testing::HasSubstr("parallel.tp must divide model.heads = 8, model.ffn = 40"),
                       ::testing::HasSubstr("got 16; the nearest valid value is 8")));
  ModelConfig three = llama();
  three.heads = 6;
  three.kv_heads = 3;
  EXPECT_THAT(
      refusal(three, 2),
      ::testing::HasSubstr("and divide model.kv_heads = 3 or be a multiple of it, got 2; the nearest valid "
                           "value is 1"));
  EXPECT_THAT(refusal(llama(), 3), ::testing::HasSubstr("the nearest valid value is 2"));
  EXPECT_THAT(refusal(llama(), 4, {.recipe = Fp8Recipe::kRowwise}), ::testing::HasSubstr("precision.fp8"));
  ModelConfig norm_over_width = llama();
  norm_over_width.has_qk_norm = true;
  norm_over_width.qk_norm_over = QkNormOver::kWidth;
  EXPECT_EQ(refusal(norm_over_width, 1), "no error");
  EXPECT_THAT(refusal(norm_over_width, 2), ::testing::HasSubstr("model.qk_norm_over = width"));
  ModelConfig wide = llama();
  wide.width = 32;
  EXPECT_EQ(refusal(wide, 4, {.recipe = Fp8Recipe::kTensorwise}), "no error");
}

}  // namespace
}  // namespace ingot
