#include "ingot/ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ingot/core/parallel.h"
#include "ingot/ops/attention/attention_softmax.h"
#include "tests/reference/attention.h"
#include "tests/reference/error_of.h"
#include "tests/reference/head_tensor.h"

namespace ingot::test {
namespace {

constexpr int64_t kGap = 3;  // unused columns of a packed row

struct SizedCase {
  DType dtype;
  AttentionShape shape;
  bool is_causal = true;
  std::vector<int64_t> doc_lengths = {};  // of each batch row; empty means no doc_start
  double spread = 1;                      // standard deviation of q and k
  float dropout = 0;
  int64_t window = 0;
};

AttentionDropout dropout_of(float p, int64_t first_row = 3) {
  return {.p = p,
          .key = {.seed = 0x123456789abcdef0, .purpose = Purpose::kDropout, .stream = 3, .step = 9},
          .first_row = first_row};
}

std::string attention_case_name(const ::testing::TestParamInfo<SizedCase>& info) {
  const auto& [dtype, s, is_causal, docs, spread, dropout, window] = info.param;
  return fmt::format("{}_B{}_T{}_S{}_H{}_K{}_D{}{}{}{}{}{}", name(dtype), s.B, s.T, s.S, s.H, s.K, s.D,
                     is_causal ? "" : "_full", docs.empty() ? "" : "_docs", spread == 1 ? "" : "_sharp",
                     dropout == 0 ? "" : "_dropout", window == 0 ? "" : fmt::format("_window{}", window));
}

std::vector<int32_t> starts_of(const std::vector<int64_t>& lengths, int64_t B) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < B; ++b) {
    int32_t begin = 0;
    for (int64_t length : lengths) {
      starts.insert(starts.end(), static_cast<size_t>(length), begin);
      begin += static_cast<int32_t>(length);
    }
  }
  return starts;
}

// All tensors of one call. If S == T, q, k and v are views of one packed buffer, and so are their gradients.
struct Problem {
  DType dtype;
  AttentionShape s;
  AttentionConfig config;
  std::vector<int32_t> starts;
  Tensor doc_start;
  Stream stream;
  Buffer packed, d_packed, kv, d_kv, out, d_out, lse;

  explicit Problem(const SizedCase& c)
      : dtype(c.dtype),
        s(c.shape),
        config{1 / std::sqrt(static_cast<float>(s.D)), c.is_causal, dropout_of(c.dropout), c.window},
        starts(c.doc_lengths.empty() ? std::vector<int32_t>{} : starts_of(c.doc_lengths, s.B)),
        packed(random_tensor(dtype, {s.B, s.T, (s.H + 2 * s.K) * s.D + kGap}, 1, c.spread)),
        d_packed(random_tensor(dtype, {s.B, s.T, (s.H + 2 * s.K) * s.D + kGap}, 2)),
        kv(random_tensor(dtype, {s.B, s.S, 2 * s.K * s.D}, 3, c.spread)),
        d_kv(random_tensor(dtype, {s.B, s.S, 2 * s.K * s.D}, 4)),
        out(random_tensor(dtype, {s.B, s.T, s.H, s.D}, 5)),
        d_out(random_tensor(dtype, {s.B, s.T, s.H, s.D}, 6)),
        lse(random_tensor(DType::f32, {s.B, s.H, s.T}, 7)) {
    if (!starts.empty()) doc_start = Tensor(starts.data(), DType::i32, {s.B, s.T});
  }
  Problem(const Problem&) = delete;

  Tensor q() const { return heads(packed, 0, s.H); }
  Tensor k() const { return s.S == s.T ? heads(packed, s.H, s.K) : heads(kv, 0, s.K); }
  Tensor v() const { return s.S == s.T ? heads(packed, s.H + s.K, s.K) : heads(kv, s.K, s.K); }
  Tensor dq() const { return heads(d_packed, 0, s.H); }
  Tensor dk() const { return s.S == s.T ? heads(d_packed, s.H, s.K) : heads(d_kv, 0, s.K); }
  Tensor dv() const { return s.S == s.T ? heads(d_packed, s.H + s.K, s.K) : heads(d_kv, s.K, s.K); }
  Tensor heads(const Tensor& t, int64_t first, int64_t count) const {
    return t.columns(first * s.D, (first + count) * s.D).split_last(count, s.D);
  }
  AttentionCase reference() const {
    return {s, config.is_causal, starts, config.scale, config.dropout, config.window};
  }

  AttentionOperands operands() const {
    return {.out = out, .lse = lse, .q = q(), .k = k(), .v = v(), .doc_start = doc_start};
  }

  // The scratch holds NaN, so that a result that depends on old contents is found.
  void forward() {
    const int64_t wanted = attention_forward_scratch(s);
    Buffer scratch(DType::f32, {wanted});
    std::fill_n(scratch.tensor().as<float>(), wanted, std::numeric_limits<float>::quiet_NaN());
    attention_forward(operands(), config, scratch, stream);
  }
  void backward() {
    const int64_t wanted = attention_backward_scratch(s);
    Buffer scratch(DType::f32, {wanted});
    std::fill_n(scratch.tensor().as<float>(), wanted, std::numeric_limits<float>::quiet_NaN());
    attention_backward({.dq = dq(), .dk = dk(), .dv = dv(), .d_out = d_out}, operands(), config, scratch,
                       stream);
  }
};

class Attention : public ::testing::TestWithParam<SizedCase> {
 protected:
  SizedCase c = GetParam();
  Problem p{c};
  double n = static_cast<double>(c.shape.D + c.shape.S);
  // A score is a sum of D products of magnitude c.spread^2; its error is the relative error of a
  // probability, and out is a mean of |v| < 5. The result is then rounded to the dtype.
  double score_error = unit_roundoff(DType::f32) * (4 + std::sqrt(static_cast<double>(c.shape.D))) *
                       std::max(1.0, 4 * c.spread * c.spread);
  double kept_scale = 1 / (1 - static_cast<double>(c.dropout));
  double tolerance = kept_scale * (unit_roundoff(c.dtype) * c.spread + 5 * score_error +
                                   unit_roundoff(DType::f32) * std::sqrt(n));
};

TEST_P(Attention, ForwardMatchesReference) {
  const AttentionResult want =
      attention_reference(p.reference(), gather(p.q()), gather(p.k()), gather(p.v()));
  p.forward();
  // On bf16 units each probability is rounded to bf16, which moves an output by at most the unit roundoff
  // times the mean of |v| with the same weights.
  const bool has_rounded_weights = c.dtype == DType::bf16 && c.shape.D % 32 == 0;
  Doubles sizes = gather(p.v());
  for (double& x : sizes) x = std::abs(x);
  const Doubles means = attention_reference(p.reference(), gather(p.q()), gather(p.k()), sizes).out;
  const Doubles got = gather(p.out);
  ASSERT_EQ(got.size(), want.out.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double of_weights = has_rounded_weights ? unit_roundoff(c.dtype) * means[i] : 0;
    ASSERT_NEAR(got[i], want.out[i], tolerance * std::max(1.0, std::abs(want.out[i])) + of_weights) << i;
  }
  expect_close(p.lse, want.lse, 4 * score_error, "lse");
}

TEST_P(Attention, BackwardMatchesReference) {
  const AttentionGradient want = attention_gradient_reference(p.reference(), gather(p.q()), gather(p.k()),
                                                              gather(p.v()), gather(p.d_out));
  p.forward();
  p.backward();
  // delta is a sum of D products with the rounded out. A key collects contributions of up to T queries,
  // whose errors are independent and whose weights decrease.
  const double weights = 1 + std::log(static_cast<double>(c.shape.T * c.shape.H / c.shape.K));
  const double bound = 4 * kept_scale * c.spread * weights * (unit_roundoff(c.dtype) + 5 * score_error);
  expect_near(p.dq(), want.dq, bound, "dq");
  expect_near(p.dk(), want.dk, bound, "dk");
  expect_near(p.dv(), want.dv, bound, "dv");
}

TEST_P(Attention, WritesOnlyItsOwnColumns) {
  const Buffer before = random_tensor(c.dtype, {c.shape.B, c.shape.T, p.packed.tensor().dim(2)}, 2);
  p.forward();
  p.backward();
  const int64_t width = p.packed.tensor().dim(2), used = p.s.S == p.s.T ? width - kGap : p.s.H * p.s.D;
  const Doubles values = to_doubles(p.d_packed), old = to_doubles(before);
  for (size_t i = 0; i < values.size(); ++i)
    if (static_cast<int64_t>(i) % width >= used) {
      ASSERT_EQ(values[i], old[i]) << i;
    }
}

class ThreadCount {
 public:
  ~ThreadCount() { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_P(Attention, IsBitwiseEqualForAnyNumberOfThreads) {
  const ThreadCount restore;
  std::vector<Doubles> results[3];
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    p.forward();
    p.backward();
    results[threads - 1] = {to_doubles(p.out), to_doubles(p.lse), gather(p.dq()), gather(p.dk()),
                            gather(p.dv())};
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

std::vector<SizedCase> attention_cases() {
  std::vector<SizedCase> all;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<AttentionShape> shapes = {
        {2, 1, 1, 3, 3, 8},    {2, 31, 31, 2, 2, 33},   {1, 32, 32, 4, 1, 32},    {2, 33, 33, 4, 2, 64},
        {1, 65, 65, 6, 2, 80}, {1, 257, 257, 2, 1, 64}, {1, 257, 257, 1, 1, 128}, {1, 200, 200, 2, 2, 1},
        {2, 5, 70, 4, 2, 32},  {1, 150, 190, 6, 2, 64}, {1, 33, 100, 2, 2, 33},   {3, 1, 31, 4, 4, 80},
        {1, 1, 257, 6, 2, 33}, {1, 1, 1300, 6, 2, 40}};
    for (const AttentionShape& s : shapes) all.push_back({dtype, s});
    all.push_back({dtype, {1, 33, 20, 2, 1, 32}, false});
    all.push_back({dtype, {1, 65, 200, 2, 2, 16}, false});
    all.push_back({dtype, {1, 1, 40, 2, 2, 16}, false});
    all.push_back({dtype, {2, 65, 65, 4, 2, 32}, true, {1, 30, 2, 32}});
    all.push_back({dtype, {1, 257, 257, 2, 1, 33}, true, {3, 150, 1, 1, 102}});
    all.push_back({dtype, {1, 65, 65, 2, 2, 8}, false, {33, 32}});
    all.push_back({dtype, {1, 129, 129, 2, 2, 64}, true, {}, 4});
    all.push_back({dtype, {1, 257, 257, 4, 2, 64}, true, {3, 150, 1, 1, 102}});
    all.push_back({dtype, {1, 257, 257, 2, 1, 64}, true, {3, 150, 1, 1, 102}, 1, 0, 50});
    all.push_back({dtype, {1, 70, 150, 2, 1, 128}, false});
    all.push_back({dtype, {1, 1, 129, 2, 2, 64}, true, {}, 4});
    for (const AttentionShape& s : std::initializer_list<AttentionShape>{{2, 1, 1, 3, 3, 8},
                                                                         {2, 31, 31, 4, 2, 33},
                                                                         {1, 33, 33, 2, 2, 16},
                                                                         {2, 130, 130, 4, 1, 32},
                                                                         {1, 257, 257, 1, 1, 64},
                                                                         {1, 70, 100, 2, 1, 40}})
      all.push_back({dtype, s, true, {}, 1, 0.2f});
    for (const auto& [s, window] :
         std::initializer_list<std::pair<AttentionShape, int64_t>>{{{2, 31, 31, 2, 2, 33}, 1},
                                                                   {{1, 65, 65, 6, 2, 80}, 7},
                                                                   {{1, 257, 257, 2, 1, 64}, 64},
                                                                   {{1, 257, 257, 2, 1, 16}, 100},
                                                                   {{1, 200, 200, 2, 2, 8}, 199},
                                                                   {{2, 33, 33, 4, 2, 64}, 500},
                                                                   {{2, 70, 230, 4, 2, 32}, 40},
                                                                   {{2, 5, 70, 4, 2, 32}, 3},
                                                                   {{3, 1, 31, 4, 4, 80}, 1},
                                                                   {{2, 1, 257, 6, 2, 33}, 100},
                                                                   {{1, 1, 1300, 6, 2, 40}, 600},
                                                                   {{1, 130, 130, 1, 1, 24}, 65}})
      if (dtype == DType::f32 || window == 100) all.push_back({dtype, s, true, {}, 1, 0, window});
    all.push_back({dtype, {1, 257, 257, 2, 1, 33}, true, {3, 150, 1, 1, 102}, 1, 0, 50});
    all.push_back({dtype, {2, 130, 130, 4, 1, 32}, true, {}, 1, 0.2f, 33});
    all.push_back({dtype, {1, 129, 129, 2, 2, 64}, true, {}, 4, 0, 20});
    all.push_back({dtype, {1, 33, 20, 2, 1, 32}, false, {}, 1, 0.5f});
    all.push_back({dtype, {2, 257, 257, 2, 1, 16}, true, {3, 150, 1, 1, 102}, 1, 0.2f});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Attention, ::testing::ValuesIn(attention_cases()), attention_case_name);

// Checks the reference of backward itself, at sizes where central differences are affordable.
TEST(AttentionReference, GradientMatchesCentralDifferences) {
  for (const AttentionCase& c : {AttentionCase{{1, 4, 6, 2, 1, 3}, true, {}, 0.7},
                                 AttentionCase{{2, 5, 5, 2, 2, 2}, true, {0, 0, 2, 2, 2, 0, 1, 1, 1, 4}, 0.7},
                                 AttentionCase{{1, 3, 2, 1, 1, 4}, false, {}, 0.7},
                                 AttentionCase{{2, 5, 5, 4, 2, 3}, true, {}, 0.7, dropout_of(0.3f)},
                                 AttentionCase{{1, 4, 6, 2, 1, 3}, true, {}, 0.7, {}, 3}}) {
    const auto [B, T, S, H, K, D] = c.shape;
    const Doubles q = to_doubles(random_tensor(DType::f32, {B, T, H, D}, 1));
    const Doubles k = to_doubles(random_tensor(DType::f32, {B, S, K, D}, 2));
    const Doubles v = to_doubles(random_tensor(DType::f32, {B, S, K, D}, 3));
    const Doubles d_out = to_doubles(random_tensor(DType::f32, {B, T, H, D}, 4));
    const AttentionGradient g = attention_gradient_reference(c, q, k, v, d_out);
    const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& e) {
      return dot(attention_reference(c, a, b, e).out, d_out);
    };
    const auto expect_equal = [](const Doubles& got, const Doubles& want) {
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-8);
    };
    expect_equal(g.dq, central_differences([&](const Doubles& x) { return loss(x, k, v); }, q));
    expect_equal(g.dk, central_differences([&](const Doubles& x) { return loss(q, x, v); }, k));
    expect_equal(g.dv, central_differences([&](const Doubles& x) { return loss(q, k, x); }, v));
  }
}

// Returns rows [begin, end) of every result, which are those of one document.
std::vector<Doubles> document(const Problem& p, int64_t begin, int64_t end) {
  std::vector<Doubles> rows;
  for (const Tensor& t : {p.out.tensor(), p.dq(), p.dk(), p.dv()}) {
    Tensor view = t;
    view.shape[1] = end - begin;
    view.data = static_cast<char*>(t.data) + static_cast<size_t>(begin * t.strides[1]) * size_bytes(t.dtype);
    rows.push_back(gather(view));
  }
  Doubles lse;
  for (int64_t h = 0; h < p.s.H; ++h)
    for (int64_t t = begin; t < end; ++t) lse.push_back(p.lse.tensor().as<float>()[h * p.s.T + t]);
  rows.push_back(lse);
  return rows;
}

void fill_rows(const Tensor& t, int64_t begin, int64_t end, float value) {
  const int64_t width = t.elements() / t.dim(1);  // B = 1
  for (int64_t i = begin * width; i < end * width; ++i)
    set_element(t, static_cast<size_t>(i), static_cast<double>(value));
}

class Documents : public ::testing::TestWithParam<DType> {};

void expect_unmoved_documents(DType dtype, float dropout, int64_t D) {
  const std::vector<int64_t> lengths = {3, 70, 2, 45};
  const int64_t T = 120;
  const SizedCase c{dtype, {1, T, T, 4, 2, D}, true, lengths, 1, dropout};
  Problem clean(c);
  clean.forward();
  clean.backward();
  for (float poison : {1e30f, std::numeric_limits<float>::quiet_NaN()}) {
    int64_t begin = 0;
    for (int64_t length : lengths) {
      const int64_t end = begin + length;
      Problem other(c);
      for (const Tensor& t : {other.packed.tensor(), other.d_out.tensor()}) {
        fill_rows(t, 0, begin, poison);
        fill_rows(t, end, T, poison);
      }
      other.forward();
      other.backward();
      ASSERT_EQ(document(other, begin, end), document(clean, begin, end)) << begin << " beside " << poison;
      begin = end;
    }
  }
}

// Heads of 64 are multiplied on bf16 units where the machine has them, heads of 40 in f32.
TEST_P(Documents, DoNotChangeABitOfEachOther) {
  for (int64_t D : {40, 64}) expect_unmoved_documents(GetParam(), 0, D);
}
TEST_P(Documents, DoNotChangeABitOfEachOtherWithDropout) {
  for (int64_t D : {40, 64}) expect_unmoved_documents(GetParam(), 0.25f, D);
}

void expect_documents_as_alone(DType dtype, int64_t D) {
  const std::vector<int64_t> lengths = {3, 90, 2, 70, 35};
  Problem together({dtype, {1, 200, 200, 4, 2, D}, true, lengths});
  together.forward();
  together.backward();
  int64_t begin = 0;
  for (int64_t length : lengths) {
    Problem alone({dtype, {1, length, length, 4, 2, D}});
    const auto copy = [&](const Tensor& to, const Tensor& from) {
      const size_t row = from.bytes() / static_cast<size_t>(from.dim(1));
      std::memcpy(to.data, static_cast<char*>(from.data) + static_cast<size_t>(begin) * row,
                  static_cast<size_t>(length) * row);
    };
    copy(alone.packed, together.packed);
    copy(alone.d_out, together.d_out);
    alone.forward();
    alone.backward();
    ASSERT_EQ(document(alone, 0, length), document(together, begin, begin + length)) << "at " << begin;
    begin += length;
  }
}

TEST_P(Documents, GiveTheResultsThatEachGivesAlone) {
  for (int64_t D : {40, 64}) expect_documents_as_alone(GetParam(), D);
}

INSTANTIATE_TEST_SUITE_P(Types, Documents, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(name(info.param)); });

// Two micro-batches of one row each drop the same probabilities as one batch of both rows.
TEST(AttentionDropout, MaskDependsOnTheRowInTheGlobalBatch) {
  const AttentionShape s{2, 70, 70, 4, 2, 16};
  Problem both({DType::f32, s, true, {}, 1, 0.3f});
  both.config.dropout.first_row = 5;
  both.forward();
  both.backward();
  for (int64_t b = 0; b < s.B; ++b) {
    Problem one({DType::f32, {1, s.T, s.S, s.H, s.K, s.D}, true, {}, 1, 0.3f});
    one.config.dropout.first_row = 5 + b;
    for (auto [to, from] : {std::pair(one.packed.tensor(), both.packed.tensor()),
                            std::pair(one.d_out.tensor(), both.d_out.tensor())})
      std::memcpy(to.data, from.rows(b, b + 1).data, to.bytes());
    one.forward();
    one.backward();
    EXPECT_EQ(gather(one.out), gather(both.out.tensor().rows(b, b + 1)));
    EXPECT_EQ(gather(one.dq()), gather(both.dq().rows(b, b + 1)));
    EXPECT_EQ(gather(one.dk()), gather(both.dk().rows(b, b + 1)));
    EXPECT_EQ(gather(one.dv()), gather(both.dv().rows(b, b + 1)));
  }
}

// A rank that holds half of the heads drops the same probabilities of them as a run with all heads.
TEST(AttentionDropout, MaskDependsOnTheHeadAmongAllRanks) {
  const AttentionShape s{2, 70, 70, 4, 2, 16};
  Problem all({DType::f32, s, true, {}, 1, 0.3f});
  all.forward();
  for (int64_t half : {0, 1}) {
    Problem some({DType::f32, {s.B, s.T, s.S, 2, 1, s.D}, true, {}, 1, 0.3f});
    some.config.dropout.first_head = 2 * half;
    some.config.dropout.all_heads = 4;
    const Doubles q = gather(all.q()), k = gather(all.k()), v = gather(all.v());
    const auto scatter = [&](const Tensor& to, const Doubles& from, int64_t first, int64_t heads) {
      for (int64_t row = 0; row < s.B * s.T; ++row)
        for (int64_t i = 0; i < to.dim(2) * s.D; ++i)
          to.as<float>()[row * to.strides[1] + i] =
              static_cast<float>(from[static_cast<size_t>((row * heads + first) * s.D + i)]);
    };
    scatter(some.q(), q, 2 * half, 4);
    scatter(some.k(), k, half, 2);
    scatter(some.v(), v, half, 2);
    some.forward();
    const Doubles got = gather(some.out), want = gather(all.out);
    for (int64_t row = 0; row < s.B * s.T; ++row)
      for (int64_t i = 0; i < 2 * s.D; ++i)
        ASSERT_EQ(got[static_cast<size_t>(row * 2 * s.D + i)],
                  want[static_cast<size_t>((row * 4 + 2 * half) * s.D + i)]);
  }
}

// With one key, out is the scaled v or zero, so each element of out shows whether
// one probability was dropped.
TEST(AttentionDropout, DropsTheGivenFractionAndDiffersBetweenSitesAndSteps) {
  const auto out = [](const std::function<void(AttentionDropout&)>& change) {
    Problem p({DType::f32, {64, 64, 1, 2, 1, 1}, false, {}, 1, 0.25f});
    change(p.config.dropout);
    p.forward();
    return to_doubles(p.out);
  };
  const Doubles first = out([](AttentionDropout&) {});
  const double n = static_cast<double>(first.size());
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 0.0)), 0.25 * n,
              4 * std::sqrt(n * 0.25 * 0.75));
  EXPECT_EQ(out([](AttentionDropout&) {}), first);
  EXPECT_NE(out([](AttentionDropout& d) { d.key.stream += 1; }), first);
  EXPECT_NE(out([](AttentionDropout& d) { d.key.step += 1; }), first);
  EXPECT_NE(out([](AttentionDropout& d) { d.key.seed += 1; }), first);
}

TEST(AttentionNumerics, NanInputReachesTheOutput) {
  Problem p({DType::f32, {1, 20, 20, 1, 1, 8}});
  fill_rows(p.packed, 7, 8, std::numeric_limits<float>::quiet_NaN());
  p.forward();
  EXPECT_TRUE(std::isnan(p.out.tensor().as<float>()[7 * 8]));
  EXPECT_TRUE(std::isnan(p.out.tensor().as<float>()[19 * 8]));
}

TEST(AttentionNumerics, ExpOfNegativeIsWithinTwoUlp) {
  for (float x = -86.5f; x < 0.001f; x += 0.00137f) {
    const double want = std::exp(static_cast<double>(x));
    ASSERT_NEAR(tile::exp_of_negative(vec::splat(x))[0], want, want * 3 * 0x1p-24) << x;
  }
  EXPECT_EQ(tile::exp_of_negative(vec::splat(0.0f))[0], 1.0f);
  EXPECT_EQ(tile::exp_of_negative(vec::splat(-87.0f))[0], 0.0f);
  EXPECT_EQ(tile::exp_of_negative(vec::splat(-std::numeric_limits<float>::infinity()))[0], 0.0f);
  EXPECT_TRUE(std::isnan(tile::exp_of_negative(vec::splat(std::nanf("")))[0]));
}

TEST(AttentionErrors, NameTheOperand) {
  Problem p({DType::f32, {1, 4, 4, 3, 3, 8}});
  EXPECT_EQ(
      error_of([&] {
        attention_forward({.out = p.out, .lse = p.lse, .q = p.q(), .k = p.heads(p.packed, 3, 2), .v = p.v()},
                          p.config, {}, p.stream);
      }),
      "attention_forward: v must be f32 (1, 4, 2, 8) with the last dim contiguous, got f32 (1, 4, 3, 8)");
  EXPECT_EQ(error_of([&] {
              attention_forward({.out = p.out,
                                 .lse = p.lse,
                                 .q = p.q(),
                                 .k = p.heads(p.packed, 3, 2),
                                 .v = p.heads(p.packed, 3, 2)},
                                p.config, {}, p.stream);
            }),
            "attention_forward: heads must be a multiple of kv heads, got 3 and 2");
  Buffer scratch(DType::f32, {attention_forward_scratch(p.s) - 1});
  EXPECT_THAT(error_of([&] { attention_forward(p.operands(), p.config, scratch, p.stream); }),
              ::testing::HasSubstr("attention_forward: scratch must be f32 of at least"));
  std::vector<int32_t> starts = {0, 0, 3, 0};
  EXPECT_EQ(error_of([&] {
              attention_forward({.out = p.out,
                                 .lse = p.lse,
                                 .q = p.q(),
                                 .k = p.k(),
                                 .v = p.v(),
                                 .doc_start = Tensor(starts.data(), DType::i32, {1, 4})},
                                p.config, scratch, p.stream);
            }),
            "attention_forward: doc_start[0][2] must be in [0, 2], got 3");
  p.config.dropout = dropout_of(1);
  EXPECT_EQ(error_of([&] { p.forward(); }), "attention_forward: dropout's p must be in [0, 1), got 1");
  p.config.dropout = dropout_of(0.5f);
  p.config.dropout.key.purpose = Purpose::kInit;
  EXPECT_EQ(error_of([&] { p.backward(); }),
            "attention_backward: dropout's key must have the purpose kDropout");
  Problem decoding({DType::f32, {1, 1, 4, 3, 3, 8}, true, {}, 1, 0.5f});
  EXPECT_EQ(error_of([&] { decoding.forward(); }), "attention_forward: no dropout where T = 1 and S = 4");
  Problem longer({DType::f32, {1, 5, 4, 3, 3, 8}});
  EXPECT_EQ(error_of([&] { longer.forward(); }), "attention_forward: causal wants S >= T, got S = 4, T = 5");
}

}  // namespace
}  // namespace ingot::test
