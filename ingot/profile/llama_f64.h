// The gradients of a LLaMA in double precision, by plain loops that share no code with the ops. They are
// the reference for gradients in other precisions (ingot bench precision). Slow: for toy models only.
#pragma once

#include <vector>

#include "ingot/nn/transformer.h"

namespace ingot {

struct LlamaF64Gradients {
  double loss = 0;                      // mean over the counted tokens, nats
  std::vector<std::vector<double>> of;  // gradients by parameter, in the order of model.params()
};

// weights: f32, on the CPU, in the order of model.params(). REQUIRES: RMSNorm with weights, RoPE, SwiGLU;
// no biases, QK-norm, logit cap, dropout or document mask; the whole model on one rank.
LlamaF64Gradients llama_f64_gradients(const Transformer& model, const std::vector<Tensor>& weights,
                                      const MicroBatch& batch);

}  // namespace ingot
