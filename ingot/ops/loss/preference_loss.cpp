#include "ingot/ops/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/copy.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/error.h"
#include "ingot/core/ignore_index.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"

namespace ingot {
namespace {

struct Document {
  int64_t begin, end;  // rows of the batch's N
  double reward;
};

// Returns the document that begins at row n. The row of the batch ends before `end`.
Document document_at(const PreferenceIn& in, int64_t n, int64_t end, double beta) {
  const int32_t *start = in.doc_start.as<int32_t>(), *target = in.targets.as<int32_t>();
  Document document{.begin = n, .end = n, .reward = 0};
  double log_p = 0;
  for (; document.end < end && start[document.end] == start[n]; ++document.end)
    if (target[document.end] != kIgnoreIndex)
      log_p -= static_cast<double>(in.losses.as<float>()[document.end]);
  document.reward = beta * (log_p - static_cast<double>(in.reference.as<float>()[n]));
  return document;
}

void add_pair(const PreferenceOut& out, const Document& chosen, const Document& rejected, double beta) {
  const double margin = chosen.reward - rejected.reward;
  const int64_t n = chosen.begin, N = out.losses.elements();
  // log(1 + exp(-margin)) without overflow
  const double loss = std::max(-margin, 0.0) + std::log1p(std::exp(-std::abs(margin)));
  out.losses.as<float>()[n] = static_cast<float>(loss);
  out.is_correct.as<uint8_t>()[n] = margin > 0;
  out.counted.as<int32_t>()[n] = 0;
  out.rewards.as<float>()[n] = static_cast<float>(chosen.reward);
  out.rewards.as<float>()[N + n] = static_cast<float>(rejected.reward);
  if (!out.weights) return;
  const auto weight = static_cast<float>(beta / (1 + std::exp(margin)));
  float* weights = out.weights.as<float>();
  std::fill(weights + chosen.begin, weights + chosen.end, weight);
  std::fill(weights + rejected.begin, weights + rejected.end, -weight);
}

}  // namespace

void preference_loss(const PreferenceOut& out, const PreferenceIn& in, float beta, Stream& stream) {
  const OpSpan span(stream, "loss",
                    traffic({in.losses, in.targets, in.doc_start, in.reference, out.losses, out.is_correct,
                             out.counted, out.rewards, out.weights}));
  if (span.plans()) return;
  const Shape bt = in.targets.shape;
  const int64_t N = in.targets.elements();
  check_tensor(in.losses, DType::f32, {N}, "preference_loss: losses");
  check_tensor(in.targets, DType::i32, {bt[0], bt[1]}, "preference_loss: targets");
  check_tensor(in.doc_start, DType::i32, bt, "preference_loss: doc_start");
  check_tensor(in.reference, DType::f32, bt, "preference_loss: reference");
  check_tensor(out.losses, DType::f32, {N}, "preference_loss: losses of pairs");
  check_tensor(out.is_correct, DType::u8, {N}, "preference_loss: is_correct");
  check_tensor(out.counted, DType::i32, {N}, "preference_loss: counted");
  check_tensor(out.rewards, DType::f32, {2, N}, "preference_loss: rewards");
  INGOT_CHECK(in.losses.device == Device::kCpu, "preference_loss: the tensors must be on the CPU");
  for (const Tensor& t : {out.losses, out.is_correct, out.rewards}) fill_zero(t, stream);
  std::fill_n(out.counted.as<int32_t>(), N, kIgnoreIndex);
  if (out.weights) {
    check_tensor(out.weights, DType::f32, {N}, "preference_loss: weights");
    fill_zero(out.weights, stream);
  }
  const auto scale = static_cast<double>(beta);
  for (int64_t end = bt[1]; end <= N; end += bt[1]) {
    for (int64_t n = end - bt[1]; n < end;) {
      const Document chosen = document_at(in, n, end, scale);
      n = chosen.end;
      if (n == end) break;
      const Document rejected = document_at(in, n, end, scale);
      n = rejected.end;
      add_pair(out, chosen, rejected, scale);
    }
  }
}

void scale_rows(const Tensor& x, const Tensor& factors, Stream& stream) {
  const OpSpan span(stream, "loss", traffic({x, x, factors}));
  if (span.plans()) return;
  const int64_t N = x.dim(0), V = x.dim(1);
  check_tensor(x, x.dtype, {N, V}, "scale_rows: x");
  check_tensor(factors, DType::f32, {N}, "scale_rows: factors");
  INGOT_CHECK(x.device == Device::kCpu, "scale_rows: the tensors must be on the CPU");
  const float* factor = factors.as<float>();
  with_dtype(x.dtype, __func__, [&]<typename D>() {
    parallel_for(N, std::max<int64_t>(1, 4096 / V), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        D* row = x.as<D>() + n * V;
        for (int64_t v = 0; v < V; ++v) row[v] = D(static_cast<float>(row[v]) * factor[n]);
      }
    });
  });
}

}  // namespace ingot
