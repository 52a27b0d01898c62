// CustomLoss is a caller's own loss of the logits. It takes the place of the cross-entropy in the head
// (LayerContext::loss); the head's products before and after it stay.
#pragma once

#include <cstdint>
#include <functional>

#include "ingot/core/arena.h"
#include "ingot/core/staging.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"
#include "ingot/nn/config.h"

namespace ingot {

class CustomLoss {
 public:
  // Returns the mean loss over the counted targets of a micro-batch. If d_logits is not empty, it writes the
  // gradient of this mean. logits and d_logits: (N, Vp) f32, of which the columns below model.vocab count;
  // the logits are capped. targets: (N) i32, kIgnoreIndex where nothing is counted. All are in host memory.
  // It is not called for a micro-batch without targets. It may throw.
  using Function = std::function<double(const Tensor& logits, const Tensor& targets, const Tensor& d_logits)>;

  // Allocates memory for the logits of N tokens, on the device.
  CustomLoss(const ModelConfig& model, int64_t N, Device device, Function function);

  struct Operands {
    Tensor x, w;                // (N, C), (Vp, C) f32, bf16 or f16
    Tensor targets;             // (N) i32
    Tensor losses, is_correct;  // (N) f32, (N) u8; written: the mean for every token, and 0
    Tensor dx, dw;              // as in LinearCrossEntropyOut; absent if no gradients are wanted
    bool adds_dw = true;
    float grad_scale = 0;
  };
  // Writes the losses and the gradients of grad_scale * (sum of the counted tokens' losses). Waits for the
  // stream.
  void run(const Operands& t, Stream& stream);

 private:
  ModelConfig model_;
  Function function_;
  Arena arena_;
  Tensor logits_, d_logits_;  // (N, Vp) f32
  Tensor rounded_;            // (N, Vp): the memory of the gradient in 16 bits
  Staging read_logits_, read_targets_, write_d_, write_losses_;
};

}  // namespace ingot
