// Attention on a device against the fp64 reference, on views of one packed (B,T,(H+2K)D) buffer.
#include "ingot/ops/attention.h"

#include "ingot/ops/attention/document_table.h"
#include "ingot/ops/deterministic.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/attention.h"
#include "tests/reference/head_tensor.h"

namespace ingot::test {
namespace {

struct SizedCase {
  const char* name;
  DType dtype;
  AttentionShape s;
  bool is_causal = true;
  int64_t document = 0;  // length of every document but the last; 0 means one document
  float dropout = 0;
  int64_t window = 0;
};

std::string attention_case_name(const ::testing::TestParamInfo<SizedCase>& info) {
  const auto& s = info.param.s;
  return fmt::format("{}_{}_B{}_T{}_S{}_H{}_K{}_D{}", info.param.name, name(info.param.dtype), s.B, s.T, s.S,
                     s.H, s.K, s.D);
}

class CudaAttention : public ::testing::TestWithParam<SizedCase>, protected OnCuda {
 protected:
  SizedCase c = GetParam();
  AttentionShape s = c.s;
  AttentionConfig config{
      .scale = 1 / std::sqrt(static_cast<float>(s.D)),
      .is_causal = c.is_causal,
      .dropout = {.p = c.dropout,
                  .key = {.seed = 77, .purpose = Purpose::kDropout, .stream = 2, .step = 5},
                  .first_row = 3},
      .window = c.window};
  std::vector<int32_t> starts = [this] {
    std::vector<int32_t> values;
    for (int64_t i = 0; c.document > 0 && i < s.B * s.T; ++i)
      values.push_back(static_cast<int32_t>(i % s.T / c.document * c.document));
    return values;
  }();
  int64_t query_width = s.H * s.D, kv_width = s.K * s.D;
  Buffer q_rows = random_tensor(c.dtype, {s.B, s.T, query_width + 8}, 1);
  Buffer kv_rows = random_tensor(c.dtype, {s.B, s.S, 2 * kv_width}, 2);
  Buffer d_out = random_tensor(c.dtype, {s.B, s.T, s.H, s.D}, 3);
  OnDevice q_there = put(q_rows), kv_there = put(kv_rows), d_out_there = put(d_out);
  OnDevice doc_starts = put(integers(starts.empty() ? std::vector<int32_t>(1) : starts));
  Tensor doc_start =
      starts.empty() ? Tensor{} : Tensor(doc_starts.tensor().data, DType::i32, {s.B, s.T}, Device::kCuda);
  OnDevice out = result(c.dtype, {s.B, s.T, s.H, s.D}), lse = result(DType::f32, {s.B, s.H, s.T});

  Tensor queries(const Tensor& t) const { return t.columns(0, query_width).split_last(s.H, s.D); }
  Tensor keys(const Tensor& t) const { return t.columns(0, kv_width).split_last(s.K, s.D); }
  Tensor values(const Tensor& t) const { return t.columns(kv_width, 2 * kv_width).split_last(s.K, s.D); }
  AttentionCase reference() const {
    return {s, c.is_causal, starts, static_cast<double>(config.scale), config.dropout, config.window};
  }
  AttentionOperands operands() const {
    return {.out = out,
            .lse = lse,
            .q = queries(q_there),
            .k = keys(kv_there),
            .v = values(kv_there),
            .doc_start = doc_start};
  }
  AttentionGradients gradients(const Tensor& dq, const Tensor& d_kv) const {
    return {.dq = queries(dq), .dk = keys(d_kv), .dv = values(d_kv), .d_out = d_out_there};
  }
  void forward() { attention_forward(operands(), config, {}, stream); }
  // The error comes from f32 sums of S products of order 1, exponentials of scores up to
  // about 10, and a final rounding.
  double tolerance() const {
    return 4 * unit_roundoff(c.dtype) + 64 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(s.S));
  }
};

TEST_P(CudaAttention, ForwardEqualsTheReference) {
  forward();
  const AttentionResult want = attention_reference(reference(), gather(queries(q_rows)),
                                                   gather(keys(kv_rows)), gather(values(kv_rows)));
  expect_close(out.to_host(), want.out, tolerance(), "out");
  expect_close(lse.to_host(), want.lse, 64 * unit_roundoff(DType::f32), "lse");
}

TEST_P(CudaAttention, BackwardEqualsTheReferenceAndIsDeterministic) {
  forward();
  const OnDevice dq = put(q_rows), d_kv = put(kv_rows), scratch = result(DType::f32, {s.B, s.H, s.T});
  const auto backward = [&] { attention_backward(gradients(dq, d_kv), operands(), config, scratch, stream); };
  backward();
  const AttentionGradient want = attention_gradient_reference(
      reference(), gather(queries(q_rows)), gather(keys(kv_rows)), gather(values(kv_rows)), gather(d_out));
  const Buffer dq_got = dq.to_host(), d_kv_got = d_kv.to_host();
  // delta comes from an output that was rounded to the dtype, and a key's gradient sums over H/K heads.
  const double bound =
      4 * tolerance() * std::sqrt(static_cast<double>(s.H / s.K)) + 2 * unit_roundoff(c.dtype);
  expect_near(queries(dq_got), want.dq, bound, "dq");
  expect_near(keys(d_kv_got), want.dk, bound, "dk");
  expect_near(values(d_kv_got), want.dv, bound, "dv");
  backward();
  expect_same_bits(d_kv.to_host(), d_kv_got, "dk and dv again");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttention,
    ::testing::Values(SizedCase{"causal", DType::f32, {1, 9, 9, 2, 1, 8}},
                      SizedCase{"causal", DType::f32, {1, 70, 70, 1, 1, 64}},
                      SizedCase{"causal", DType::bf16, {2, 33, 33, 4, 2, 16}},
                      SizedCase{"causal", DType::bf16, {1, 140, 140, 1, 1, 24}},
                      SizedCase{"causal", DType::bf16, {1, 40, 40, 2, 2, 128}},
                      SizedCase{"causal", DType::f16, {1, 33, 33, 2, 1, 32}},
                      SizedCase{"causal", DType::f32, {1, 20, 20, 1, 1, 250}},
                      SizedCase{"longer_keys", DType::f32, {1, 5, 50, 2, 1, 40}},
                      SizedCase{"one_query", DType::f32, {2, 1, 37, 2, 1, 33}},
                      SizedCase{"full", DType::f32, {1, 17, 29, 2, 1, 32}, false},
                      SizedCase{"documents", DType::f32, {2, 90, 90, 1, 1, 64}, true, 37},
                      SizedCase{"documents", DType::bf16, {1, 150, 150, 2, 1, 32}, true, 5},
                      SizedCase{"window", DType::f32, {1, 150, 150, 2, 1, 64}, true, 0, 0, 40},
                      SizedCase{"window", DType::bf16, {2, 33, 33, 2, 2, 16}, true, 0, 0, 1},
                      SizedCase{"window_of_keys", DType::f32, {1, 5, 50, 2, 1, 40}, true, 0, 0, 7},
                      SizedCase{"window_of_documents", DType::f32, {2, 90, 90, 1, 1, 32}, true, 37, 0, 20},
                      SizedCase{"dropout", DType::f32, {1, 35, 35, 2, 1, 32}, true, 0, 0.3f}),
    attention_case_name);

// If the caller provides scratch, a device with cuDNN runs cuDNN's kernels. They round probabilities and
// their gradients to the dtype before they multiply them.
class CudaFusedAttention : public CudaAttention {
 protected:
  OnDevice forward_scratch =
      result(DType::f32, {std::max<int64_t>(1, attention_forward_scratch(s, Device::kCuda))});
  OnDevice backward_scratch = result(DType::f32, {attention_backward_scratch(s, Device::kCuda)});
};

TEST_P(CudaFusedAttention, ForwardAndBackwardEqualTheReference) {
  attention_forward(operands(), config, forward_scratch, stream);
  const Doubles q = gather(queries(q_rows)), k = gather(keys(kv_rows)), v = gather(values(kv_rows));
  const AttentionResult want = attention_reference(reference(), q, k, v);
  const double rounded = tolerance() + 2 * unit_roundoff(c.dtype);
  expect_close(out.to_host(), want.out, rounded, "out");
  expect_close(lse.to_host(), want.lse, 64 * unit_roundoff(DType::f32), "lse");
  const OnDevice dq = put(q_rows), d_kv = put(kv_rows);
  const auto backward = [&] {
    attention_backward(gradients(dq, d_kv), operands(), config, backward_scratch, stream);
  };
  backward();
  const AttentionGradient grads = attention_gradient_reference(reference(), q, k, v, gather(d_out));
  const double bound = 8 * rounded * std::sqrt(static_cast<double>(s.H / s.K));
  const auto expect_gradients = [&] {
    const Buffer dq_got = dq.to_host(), d_kv_got = d_kv.to_host();
    expect_near(queries(dq_got), grads.dq, bound, "dq");
    expect_near(keys(d_kv_got), grads.dk, bound, "dk");
    expect_near(values(d_kv_got), grads.dv, bound, "dv");
  };
  expect_gradients();
  set_deterministic(stream, true);
  backward();
  expect_gradients();
  const Buffer first = dq.to_host();
  backward();
  expect_same_bits(dq.to_host(), first, "dq again");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaFusedAttention,
    ::testing::Values(SizedCase{"causal", DType::bf16, {2, 64, 64, 2, 2, 64}},
                      SizedCase{"causal", DType::bf16, {1, 70, 70, 4, 2, 128}},
                      SizedCase{"causal", DType::bf16, {1, 40, 40, 1, 1, 256}},
                      SizedCase{"causal", DType::f16, {1, 64, 64, 2, 1, 64}},
                      SizedCase{"window", DType::bf16, {2, 128, 128, 2, 1, 64}, true, 0, 0, 40},
                      SizedCase{"window_of_documents", DType::bf16, {2, 128, 128, 2, 1, 64}, true, 37, 0, 20},
                      SizedCase{"documents", DType::bf16, {2, 90, 90, 2, 1, 64}, true, 37}),
    attention_case_name);

// Documents of several lengths as the batch of cuDNN's graphs, on q, k and v in one buffer. Without cuDNN the
// same calls compute with the mask.
class CudaDocuments : public ::testing::TestWithParam<AttentionShape>, protected OnCuda {
 protected:
  AttentionShape s = GetParam();
  int64_t width = (s.H + 2 * s.K) * s.D;
  std::vector<int32_t> starts, rows;
  Buffer packed = random_tensor(DType::bf16, {s.B, s.T, width}, 1);
  Buffer d_out = random_tensor(DType::bf16, {s.B, s.T, s.H, s.D}, 2);
  void SetUp() override {
    for (int64_t i = 0; i < s.B * s.T; ++i) {
      const int64_t t = i % s.T, first = t < 70 ? 0 : t < 71 ? 70 : 71;
      starts.push_back(static_cast<int32_t>(first));
      if (first == t) rows.push_back(static_cast<int32_t>(i));
    }
    rows.resize(rows.size() + 2, static_cast<int32_t>(s.B * s.T));  // with an empty document
  }
  Tensor part(const Tensor& t, int64_t first, int64_t heads) const {
    return t.columns(first * s.D, (first + heads) * s.D).split_last(heads, s.D);
  }
  Tensor q(const Tensor& t) const { return part(t, 0, s.H); }
  Tensor k(const Tensor& t) const { return part(t, s.H, s.K); }
  Tensor v(const Tensor& t) const { return part(t, s.H + s.K, s.K); }
};

TEST_P(CudaDocuments, ForwardAndBackwardEqualTheReference) {
  const OnDevice there = put(packed), d_out_there = put(d_out), starts_there = put(integers(starts)),
                 rows_there = put(integers(rows));
  const Tensor doc_start(starts_there.tensor().data, DType::i32, {s.B, s.T}, Device::kCuda);
  const AttentionConfig config{
      .scale = 0.125f,
      .cu_seqlens = Tensor(rows_there.tensor().data, DType::i32, {std::ssize(rows)}, Device::kCuda)};
  const OnDevice out = result(DType::bf16, {s.B, s.T, s.H, s.D}), lse = result(DType::f32, {s.B, s.H, s.T});
  const OnDevice forward_scratch =
      result(DType::f32, {std::max<int64_t>(1, attention_forward_scratch(s, Device::kCuda, true))});
  const OnDevice backward_scratch = result(DType::f32, {attention_backward_scratch(s, Device::kCuda, true)});
  const AttentionOperands operands{
      .out = out, .lse = lse, .q = q(there), .k = k(there), .v = v(there), .doc_start = doc_start};
  attention_forward(operands, config, forward_scratch, stream);
  const AttentionCase reference{s, true, starts, 0.125, {}, 0};
  const Doubles qs = gather(q(packed)), ks = gather(k(packed)), vs = gather(v(packed));
  const AttentionResult want = attention_reference(reference, qs, ks, vs);
  const double tolerance =
      6 * unit_roundoff(DType::bf16) + 64 * unit_roundoff(DType::f32) * std::sqrt(static_cast<double>(s.T));
  expect_close(out.to_host(), want.out, tolerance, "out");
  expect_close(lse.to_host(), want.lse, 64 * unit_roundoff(DType::f32), "lse");

  const OnDevice d = put(packed);
  attention_backward({.dq = q(d), .dk = k(d), .dv = v(d), .d_out = d_out_there}, operands, config,
                     backward_scratch, stream);
  const AttentionGradient grads = attention_gradient_reference(reference, qs, ks, vs, gather(d_out));
  const double bound = 8 * tolerance * std::sqrt(static_cast<double>(s.H / s.K));
  const Buffer got = d.to_host();
  expect_near(q(got), grads.dq, bound, "dq");
  expect_near(k(got), grads.dk, bound, "dk");
  expect_near(v(got), grads.dv, bound, "dv");
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaDocuments,
                         ::testing::Values(AttentionShape{2, 300, 300, 2, 2, 64},
                                           AttentionShape{2, 256, 256, 4, 2, 128}));

// cuDNN's kernels get documents as lengths and first elements.
TEST(CudaDocumentTable, HasTheLengthsAndTheFirstElements) {
  Stream stream = cuda::make_stream();
  const OnDevice rows(integers({0, 5, 6, 16, 16}), stream);
  const OnDevice lengths(DType::i32, {4}, stream), qkv_at(DType::i32, {5}, stream),
      out_at(DType::i32, {5}, stream), lse_at(DType::i32, {5}, stream);
  cuda::document_table({lengths, qkv_at, out_at, lse_at},
                       Tensor(rows.tensor().data, DType::i32, {5}, Device::kCuda),
                       {.qkv = 48, .out = 16, .lse = 2}, stream);
  const auto got = [](const OnDevice& t, size_t count) {
    const Buffer host = t.to_host();
    const int32_t* first = host.tensor().as<int32_t>();
    return std::vector<int32_t>(first, first + count);
  };
  EXPECT_EQ(got(lengths, 4), (std::vector<int32_t>{5, 1, 10, 0}));
  EXPECT_EQ(got(qkv_at, 5), (std::vector<int32_t>{0, 240, 288, 768, 768}));
  EXPECT_EQ(got(out_at, 5), (std::vector<int32_t>{0, 80, 96, 256, 256}));
  EXPECT_EQ(got(lse_at, 5), (std::vector<int32_t>{0, 10, 12, 32, 32}));
}

TEST(CudaDocumentTable, LseIsTurnedToTokensAndBack) {
  Stream stream = cuda::make_stream();
  constexpr int64_t B = 2, H = 3, T = 5;
  const Buffer want = random_tensor(DType::f32, {B, H, T}, 4);
  const OnDevice lse(want, stream), by_token(DType::f32, {B * T, H}, stream),
      back(DType::f32, {B, H, T}, stream);
  cuda::lse_to_tokens(by_token, lse, stream);
  cuda::lse_from_tokens(back, by_token, stream);
  const Buffer turned = by_token.to_host();
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t t = 0; t < T; ++t)
        EXPECT_EQ(turned.tensor().as<float>()[(b * T + t) * H + h],
                  want.tensor().as<float>()[(b * H + h) * T + t]);
  expect_same_bits(back.to_host(), want, "lse");
}

// A query does not read keys that it may not see, so a NaN among them must not reach it.
TEST(CudaAttentionMask, NanBehindTheMaskStaysThere) {
  Stream stream = cuda::make_stream();
  const int64_t T = 24, D = 16;
  Buffer q = random_tensor(DType::f32, {1, T, 1, D}, 1), k = random_tensor(DType::f32, {1, T, 1, D}, 2);
  Buffer v = random_tensor(DType::f32, {1, T, 1, D}, 3);
  for (int64_t i = 12 * D; i < T * D; ++i)
    k.tensor().as<float>()[i] = v.tensor().as<float>()[i] = std::numeric_limits<float>::quiet_NaN();
  const OnDevice q_there(q, stream), k_there(k, stream), v_there(v, stream),
      out(DType::f32, {1, T, 1, D}, stream);
  attention_forward({.out = out, .q = q_there, .k = k_there, .v = v_there}, {.scale = 0.25f}, {}, stream);
  const Doubles got = to_doubles(out.to_host());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isfinite(got[i]), i < 12 * D) << i;
}

}  // namespace
}  // namespace ingot::test
