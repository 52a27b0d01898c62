// Int8Weights holds a model's weights for generation on the CPU: matrices and tables as 8-bit integers
// (ops/int8_matrix.h), learned positions in the compute dtype, vectors in f32. There is no other copy of
// them.
#pragma once

#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/nn/param_store.h"
#include "ingot/ops/int8_matrix.h"

namespace ingot {

class Int8Weights final : public ParamStore {
 public:
  // All weights are zero. The list is borrowed. REQUIRES: this rank has whole parameters.
  Int8Weights(const ParamList& list, DType compute);

  static size_t planned_bytes(const ParamList& list, DType compute);

  const UnitBuffers& buffers(int) override { return no_buffers_; }
  Tensor weight(int id) override;
  const Int8Matrix* int8_weight(int id) override;
  Tensor int8_room() override { return tensors_.room; }

  // Writes every weight to a store that has weight() of it, rounded to the dtype there.
  void copy_to(ParamStore& other, Stream& stream);
  size_t bytes() const { return arena_.capacity_bytes(); }

 private:
  struct Tensors {
    std::vector<Int8Matrix> matrices;  // by id; empty for weights that are in values
    std::vector<Tensor> values;        // by id; empty for those in matrices
    Tensor room;                       // u8, for int8_matmul with any of the matrices
  };
  static Tensors lay_out(Arena& arena, const ParamList& list, DType compute);

  Arena arena_;
  Tensors tensors_;
  UnitBuffers no_buffers_;
};

}  // namespace ingot
