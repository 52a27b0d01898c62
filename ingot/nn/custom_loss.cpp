#include "ingot/nn/custom_loss.h"

#include <algorithm>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/core/ignore_index.h"
#include "ingot/core/parallel.h"
#include "ingot/nn/logit_cap.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/matmul.h"

namespace ingot {
namespace {

size_t logit_bytes(const ModelConfig& model, int64_t N) {
  return static_cast<size_t>(N * model.vocab_padded()) * (2 * sizeof(float) + sizeof(bf16)) +
         3 * Arena::kDeviceAlign;
}

}  // namespace

CustomLoss::CustomLoss(const ModelConfig& model, int64_t N, Device device, Function function)
    : model_(model),
      function_(std::move(function)),
      arena_("logits of a custom loss", logit_bytes(model, N), memory_of(device)),
      logits_(arena_.alloc(DType::f32, {N, model.vocab_padded()})),
      d_logits_(arena_.alloc(DType::f32, logits_.shape)),
      rounded_(arena_.alloc(DType::bf16, logits_.shape)) {}

void CustomLoss::run(const Operands& t, Stream& stream) {
  const int64_t N = logits_.dim(0), Vp = logits_.dim(1), vocab = model_.vocab;
  check_tensor(t.targets, DType::i32, {N}, "CustomLoss: targets");
  matmul(logits_, t.x, t.w, MatmulForm::kNT, false, stream);
  const Tensor logits = read_logits_.read(logits_, stream), targets = read_targets_.read(t.targets, stream);
  const Tensor losses = write_losses_.room(t.losses);
  const Tensor d = t.dx ? write_d_.room(d_logits_) : Tensor{};
  const bool has_cap = model_.cap.kind != LogitCap::kNone;
  if (has_cap)
    parallel_for(N * Vp, 1 << 12, [&](int64_t begin, int64_t end) {
      for (float* z = logits.as<float>() + begin; z < logits.as<float>() + end; ++z)
        *z = static_cast<float>(apply_cap(model_.cap, static_cast<double>(*z)));
    });
  const int32_t* ids = targets.as<int32_t>();
  const int64_t counted = N - std::count(ids, ids + N, kIgnoreIndex);
  double loss = 0;
  if (counted > 0)
    loss = function_(logits, targets, d);
  else if (d)
    std::fill_n(d.as<float>(), N * Vp, 0.0f);
  std::fill_n(losses.as<float>(), N, static_cast<float>(loss));
  write_losses_.write(t.losses, stream);
  if (t.is_correct) fill_zero(t.is_correct, stream);
  if (!d) return;
  const float scale = t.grad_scale * static_cast<float>(counted);
  parallel_for(N, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float* g = d.as<float>() + n * Vp;
      const float* z = logits.as<float>() + n * Vp;
      for (int64_t v = 0; v < vocab; ++v)
        g[v] *=
            has_cap ? scale * static_cast<float>(cap_slope(model_.cap, static_cast<double>(z[v]))) : scale;
      std::fill(g + vocab, g + Vp, 0.0f);
    }
  });
  write_d_.write(d_logits_, stream);
  Tensor gradient = d_logits_;
  if (t.w.dtype != DType::f32) {
    gradient = Tensor(rounded_.data, t.w.dtype, rounded_.shape, rounded_.device);
    cast(gradient, d_logits_, stream);
  }
  matmul(t.dx, gradient, t.w, MatmulForm::kNN, false, stream);
  if (t.dw) matmul(t.dw, gradient, t.x, MatmulForm::kTN, t.adds_dw, stream);
}

}  // namespace ingot
