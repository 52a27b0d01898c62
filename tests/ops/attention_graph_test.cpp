// The graphs that cuDNN compiles to kernels, computed in fp64 and compared with attention's reference.
#include "ingot/ops/attention/attention_graph.h"

#include "tests/reference/attention.h"
#include "tests/reference/head_tensor.h"
#include "tests/reference/op_graph.h"

namespace ingot::test {
namespace {

struct AttentionGraphCase {
  const char* name;
  AttentionShape s;
  int64_t document = 0;  // length of every document but the last; 0 means one document
  bool masks_with_infinity = false;
  int64_t window = 0;
  int64_t spare = -1;  // if not negative, the graph's batch are the documents and so many empty ones
};

class AttentionGraphs : public ::testing::TestWithParam<AttentionGraphCase> {
 protected:
  AttentionShape s = GetParam().s;
  int64_t width = (s.H + 2 * s.K) * s.D;
  AttentionConfig config{.scale = 0.3f, .window = GetParam().window};
  Buffer packed = random_tensor(DType::bf16, {s.B, s.T, width}, 1, 2.0);
  Buffer d_out = random_tensor(DType::bf16, {s.B, s.T, s.H, s.D}, 2);
  Buffer out = zeros(DType::bf16, {s.B, s.T, s.H, s.D}), d_packed = zeros(DType::bf16, {s.B, s.T, width});
  std::vector<int32_t> starts = [this] {
    std::vector<int32_t> values;
    for (int64_t i = 0; GetParam().document > 0 && i < s.B * s.T; ++i)
      values.push_back(static_cast<int32_t>(i % s.T / GetParam().document * GetParam().document));
    return values;
  }();
  Tensor doc_start = starts.empty() ? Tensor{} : Tensor(starts.data(), DType::i32, {s.B, s.T});

  Tensor part(const Tensor& t, int64_t first, int64_t heads) const {
    return t.columns(first * s.D, (first + heads) * s.D).split_last(heads, s.D);
  }
  Tensor q(const Tensor& t) const { return part(t, 0, s.H); }
  Tensor k(const Tensor& t) const { return part(t, s.H, s.K); }
  Tensor v(const Tensor& t) const { return part(t, s.H + s.K, s.K); }
  // The rows where the documents begin, and where the last one and the empty ones end.
  std::vector<int32_t> cu_seqlens() const {
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < s.B * s.T; ++i)
      if (starts[static_cast<size_t>(i)] == i % s.T) rows.push_back(static_cast<int32_t>(i));
    rows.resize(rows.size() + static_cast<size_t>(GetParam().spare) + 1, static_cast<int32_t>(s.B * s.T));
    return rows;
  }
  FusedAttention problem() const {
    auto found = fused_attention(
        {.out = out, .q = q(packed), .k = k(packed), .v = v(packed), .doc_start = doc_start}, config);
    EXPECT_TRUE(
        found &&
        add_gradients(*found, {.dq = q(d_packed), .dk = k(d_packed), .dv = v(d_packed), .d_out = d_out}));
    if (found) found->masks_with_infinity = GetParam().masks_with_infinity;
    if (found && GetParam().spare >= 0) {
      found->documents = std::ssize(cu_seqlens()) - 1;
      found->has_documents = false;
    }
    return found.value_or(FusedAttention{});
  }
  AttentionCase reference() const {
    return {s, true, starts, static_cast<double>(config.scale), config.dropout, config.window};
  }

  // Returns the memory of a view as the graph sees it, from the view's first element.
  static Doubles memory_of(const Tensor& t) {
    Doubles values;
    const int64_t last = (t.dim(0) - 1) * t.strides[0] + (t.dim(1) - 1) * t.strides[1] +
                         (t.dim(2) - 1) * t.strides[2] + t.dim(3);
    for (int64_t i = 0; i < last; ++i) values.push_back(element(t, static_cast<size_t>(i)));
    return values;
  }
  // Returns the elements of the view `like` in such memory.
  static Doubles elements(const Doubles& memory, const Tensor& like) {
    Doubles values;
    for (int64_t b = 0; b < like.dim(0); ++b)
      for (int64_t t = 0; t < like.dim(1); ++t)
        for (int64_t h = 0; h < like.dim(2); ++h)
          for (int64_t d = 0; d < like.dim(3); ++d)
            values.push_back(memory.at(
                static_cast<size_t>(b * like.strides[0] + t * like.strides[1] + h * like.strides[2] + d)));
    return values;
  }
  GraphMemory inputs(const AttentionGraph& g) const {
    GraphMemory memory{{g.q, memory_of(q(packed))}, {g.k, memory_of(k(packed))}, {g.v, memory_of(v(packed))}};
    if (g.doc_start != OpGraph::kNone) memory[g.doc_start] = Doubles(starts.begin(), starts.end());
    if (g.lengths == OpGraph::kNone) return memory;
    const std::vector<int32_t> rows = cu_seqlens();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i + 1 < rows.size()) memory[g.lengths].push_back(rows[i + 1] - rows[i]);
      memory[g.qkv_at].push_back(static_cast<double>(rows[i] * width));
      memory[g.out_at].push_back(static_cast<double>(rows[i] * s.H * s.D));
      memory[g.lse_at].push_back(static_cast<double>(rows[i] * s.H));
    }
    return memory;
  }
  // lse (B,H,T) by tokens (B*T,H), as graphs of documents have it, or the same.
  Doubles as_graph_has(const Doubles& lse) const {
    if (GetParam().spare < 0) return lse;
    Doubles by_token;
    for (int64_t row = 0; row < s.B * s.T; ++row)
      for (int64_t h = 0; h < s.H; ++h)
        by_token.push_back(lse.at(static_cast<size_t>((row / s.T * s.H + h) * s.T + row % s.T)));
    return by_token;
  }
};

void expect_equal(const Doubles& got, const Doubles& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i)  // both are fp64, in different orders
    ASSERT_NEAR(got[i], want[i], 1e-11 * std::max(1.0, std::abs(want[i]))) << what << "[" << i << "]";
}

TEST_P(AttentionGraphs, ComputeTheFormula) {
  const Doubles qs = gather(q(packed)), ks = gather(k(packed)), vs = gather(v(packed));
  const AttentionResult want = attention_reference(reference(), qs, ks, vs);
  const auto rows = static_cast<size_t>(s.B * s.H * s.T);

  const AttentionGraph f = attention_forward_graph(problem());
  GraphMemory memory = inputs(f);
  memory[f.out] = memory_of(out);
  memory[f.lse] = Doubles(rows);
  GraphReference(f.graph, memory);
  expect_equal(elements(memory[f.out], out), want.out, "out");
  expect_equal(memory[f.lse], as_graph_has(want.lse), "lse");

  const AttentionGraph b = attention_backward_graph(problem());
  GraphMemory back = inputs(b);
  back[b.out] = want.out;
  back[b.lse] = as_graph_has(want.lse);
  back[b.d_out] = memory_of(d_out);
  back[b.dq] = memory_of(q(d_packed));
  back[b.dk] = memory_of(k(d_packed));
  back[b.dv] = memory_of(v(d_packed));
  back[b.delta] = Doubles(rows);
  back[b.dq_sum] = Doubles(static_cast<size_t>(s.B * s.T * width));
  for (const OpGraph::Value all : {b.dk_heads, b.dv_heads})
    if (all != OpGraph::kNone) back[all] = Doubles(static_cast<size_t>(s.B * s.T * width * s.H / s.K));
  GraphReference(b.graph, back);
  const AttentionGradient grads = attention_gradient_reference(reference(), qs, ks, vs, gather(d_out));
  expect_equal(elements(back[b.dq], q(d_packed)), grads.dq, "dq");
  expect_equal(elements(back[b.dk], k(d_packed)), grads.dk, "dk");
  expect_equal(elements(back[b.dv], v(d_packed)), grads.dv, "dv");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionGraphs,
    ::testing::Values(AttentionGraphCase{"one_head", {1, 7, 7, 1, 1, 8}},
                      AttentionGraphCase{"heads", {2, 9, 9, 3, 3, 16}},
                      AttentionGraphCase{"shared_keys", {2, 11, 11, 4, 2, 8}},
                      AttentionGraphCase{"documents", {2, 12, 12, 2, 1, 8}, 5},
                      AttentionGraphCase{"window", {2, 11, 11, 2, 1, 8}, 0, false, 4},
                      AttentionGraphCase{"window_of_documents", {1, 12, 12, 2, 2, 8}, 5, true, 3},
                      AttentionGraphCase{"window_of_sequences", {2, 12, 12, 2, 1, 8}, 7, true, 3, 1},
                      AttentionGraphCase{"infinity", {2, 9, 9, 3, 3, 16}, 0, true},
                      AttentionGraphCase{"infinity_documents", {2, 12, 12, 2, 1, 8}, 5, true},
                      AttentionGraphCase{"sequences", {2, 12, 12, 2, 2, 8}, 5, false, 0, 0},
                      AttentionGraphCase{"empty_sequences", {1, 11, 11, 3, 3, 16}, 4, true, 0, 3},
                      AttentionGraphCase{"sequences_shared_keys", {2, 9, 9, 4, 2, 8}, 4, true, 0, 2}),
    [](const auto& info) { return std::string(info.param.name); });

// cuDNN has no kernel for these, or would compute them differently.
TEST(FusedAttention, AcceptsOnlyWhatCudnnSupports) {
  const auto is_taken = [](DType dtype, const AttentionShape& s, const AttentionConfig& config) {
    const Buffer q(dtype, {s.B, s.T, s.H, s.D}), k(dtype, {s.B, s.S, s.K, s.D});
    return fused_attention({.out = q, .q = q, .k = k, .v = k}, config).has_value();
  };
  const AttentionConfig plain{.scale = 1};
  AttentionConfig dropping = plain, full = plain;
  dropping.dropout.p = 0.1f;
  full.is_causal = false;
  EXPECT_TRUE(is_taken(DType::bf16, {1, 16, 16, 2, 1, 64}, plain));
  EXPECT_TRUE(is_taken(DType::f16, {1, 7, 7, 2, 2, 256}, plain));
  EXPECT_FALSE(is_taken(DType::f32, {1, 16, 16, 2, 1, 64}, plain));
  EXPECT_FALSE(is_taken(DType::bf16, {1, 16, 16, 2, 1, 64}, dropping));
  EXPECT_FALSE(is_taken(DType::bf16, {1, 16, 16, 2, 1, 64}, full));
  EXPECT_FALSE(is_taken(DType::bf16, {1, 1, 16, 2, 1, 64}, plain));
  EXPECT_FALSE(is_taken(DType::bf16, {1, 16, 16, 2, 1, 60}, plain));
  EXPECT_FALSE(is_taken(DType::bf16, {1, 16, 16, 2, 1, 264}, plain));
  // A row begins between 16-byte words.
  const Buffer rows(DType::bf16, {1, 4, 72});
  const Tensor shifted = rows.tensor().columns(4, 68).split_last(1, 64);
  EXPECT_FALSE(fused_attention({.out = shifted, .q = shifted, .k = shifted, .v = shifted}, plain));
}

// Documents become the batch of the graph only where cuDNN is right and 32 bits hold its offsets.
TEST(FusedAttention, TakesDocumentsAsItsBatch) {
  constexpr int64_t B = 2, T = 128, H = 2, D = 64;
  constexpr size_t kVersion = 91900;
  const std::vector<int32_t> starts(B * T), rows{0, 100, 128, 256, 256};
  const Tensor doc_start(const_cast<int32_t*>(starts.data()), DType::i32, {B, T});
  const Tensor cu_seqlens(const_cast<int32_t*>(rows.data()), DType::i32, {5});
  const auto problem_of = [&](int64_t window, int64_t head_dims) {
    const Buffer packed(DType::bf16, {B, T, 3 * H * head_dims}), out(DType::bf16, {B, T, H, head_dims});
    const auto part = [&](int64_t i) {
      return packed.tensor().columns(i * H * head_dims, (i + 1) * H * head_dims).split_last(H, head_dims);
    };
    auto found =
        fused_attention({.out = out, .q = part(0), .k = part(1), .v = part(2), .doc_start = doc_start},
                        {.scale = 1, .window = window});
    EXPECT_TRUE(found && add_gradients(*found, {.dq = part(0), .dk = part(1), .dv = part(2), .d_out = out}));
    return found.value_or(FusedAttention{});
  };
  const AttentionConfig plain{.scale = 1, .cu_seqlens = cu_seqlens};
  FusedAttention taken = problem_of(0, D);
  ASSERT_TRUE(take_documents(taken, plain, kVersion));
  EXPECT_EQ(taken.documents, 4);
  EXPECT_FALSE(taken.has_documents);

  const auto is_taken = [&](FusedAttention p, const AttentionConfig& config, size_t version) {
    const bool is = take_documents(p, config, version);
    EXPECT_EQ(is, p.documents > 0);
    EXPECT_NE(is, p.has_documents);
    return is;
  };
  EXPECT_FALSE(is_taken(problem_of(0, D), {.scale = 1}, kVersion));
  EXPECT_FALSE(is_taken(problem_of(0, D), plain, 91500));
  EXPECT_FALSE(is_taken(problem_of(0, 24), plain, kVersion));
  AttentionConfig in_window = plain;
  in_window.window = 7;
  EXPECT_TRUE(is_taken(problem_of(7, D), in_window, kVersion));
  FusedAttention apart = problem_of(0, D), large = apart, many = apart;
  apart.dk[1] = 7 * apart.dq[1];
  EXPECT_FALSE(is_taken(apart, plain, kVersion));
  large.B = int64_t{1} << 20;
  EXPECT_FALSE(is_taken(large, plain, kVersion));
  many.B = 1;  // 4 documents of 128 tokens
  EXPECT_FALSE(is_taken(many, plain, kVersion));
}

// cuDNN up to 9.15.0 has wrong gradients without a padding mask where T is no multiple of 128.
TEST(FusedAttention, GradientsAreLeftToIngotWhereCudnnHasThemWrong) {
  const auto is_right = [](int64_t T, size_t version) { return has_right_gradients({.T = T}, version); };
  EXPECT_TRUE(is_right(1024, 90600));
  EXPECT_FALSE(is_right(1000, 90600));
  EXPECT_FALSE(is_right(1000, 91500));
  EXPECT_TRUE(is_right(1000, 91501));
  EXPECT_FALSE(is_right(1, 92600));
}

}  // namespace
}  // namespace ingot::test
