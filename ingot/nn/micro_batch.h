// A micro-batch of training.
#pragma once

#include "ingot/core/tensor.h"

namespace ingot {

// One micro-batch, on the stream's device. N = B*T.
struct MicroBatch {
  Tensor tokens;     // (B, T) i32
  Tensor targets;    // (B, T) i32, kIgnoreIndex where nothing is predicted
  Tensor doc_start;  // (B, T) i32: position in the row where the token's document begins; empty: one document
  Tensor cu_seqlens = {};  // on a device, with doc_start: AttentionConfig::cu_seqlens, or empty
  Tensor reference = {};   // (B, T) f32: PreferenceIn::reference of a batch of pairs, or empty

  // The elements of cu_seqlens, for which attention chooses kernels.
  int64_t documents() const { return cu_seqlens ? cu_seqlens.elements() : 0; }
};

}  // namespace ingot
