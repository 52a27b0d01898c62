// Generation of one sequence on the CPU, call by call.
#pragma once

#include <span>
#include <vector>

#include "ingot/nn/transformer.h"

namespace ingot {

// The caches of one sequence and what has been appended to them.
struct OneSequence {
  std::vector<KvCache> caches;
  int64_t length = 0;
  std::vector<int32_t> memory = {};

  // Returns the batch that appends the tokens.
  InferBatch batch(std::span<const int32_t> tokens) {
    memory.resize(4 * tokens.size());
    const Tensor ids(memory.data(), DType::i32, InferBatch::ids_shape(std::ssize(tokens)));
    return InferBatch(ids, tokens, length, caches.front().positions());
  }
  // Appends the tokens and writes the capped logits (Vp) of the last one.
  void append(const Transformer& model, LayerContext& ctx, std::span<const int32_t> tokens,
              std::vector<float>& logits) {
    const int64_t Vp = model.config().vocab_padded();
    logits.resize(static_cast<size_t>(Vp));
    model.infer(ctx, batch(tokens), caches, Tensor(logits.data(), DType::f32, {1, Vp}));
    model.cap_logits(std::span(logits).first(static_cast<size_t>(model.config().vocab)));
    length += std::ssize(tokens);
  }
};

}  // namespace ingot
