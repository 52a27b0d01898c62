#pragma once

#include <cmath>
#include <utility>

#include "ingot/core/ignore_index.h"
#include "ingot/nn/custom_loss.h"
#include "ingot/train/trainer.h"

namespace ingot {

// Cross-entropy by its definition, as a CustomLoss::Function for the models of small_config().
inline double plain_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& d) {
  constexpr int64_t vocab = 61;
  const int64_t N = logits.dim(0), Vp = logits.dim(1);
  int64_t counted = 0;
  for (int64_t n = 0; n < N; ++n) counted += targets.as<int32_t>()[n] != kIgnoreIndex;
  double sum = 0;
  for (int64_t n = 0; n < N; ++n) {
    const float* z = logits.as<float>() + n * Vp;
    const int32_t target = targets.as<int32_t>()[n];
    double all = 0;
    for (int64_t v = 0; v < vocab; ++v) all += std::exp(static_cast<double>(z[v]));
    if (target != kIgnoreIndex) sum += std::log(all) - static_cast<double>(z[target]);
    for (int64_t v = 0; d && v < vocab; ++v)
      d.as<float>()[n * Vp + v] =
          target == kIgnoreIndex
              ? 0.0f
              : static_cast<float>((std::exp(static_cast<double>(z[v])) / all - (v == target)) /
                                   static_cast<double>(counted));
  }
  return sum / static_cast<double>(counted);
}

inline CustomLoss custom_loss(const Trainer& trainer, CustomLoss::Function function) {
  const BatchShape& shape = trainer.layout().batch_shape;
  return CustomLoss(trainer.layout().model->config(), shape.batch * shape.context,
                    trainer.layout().stream->device, std::move(function));
}

}  // namespace ingot
