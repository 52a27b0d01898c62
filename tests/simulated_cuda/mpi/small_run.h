// A run that a simulated device trains in a second.
#pragma once

#include "tests/parallel/mpi/ranks_fixture.h"

namespace ingot {

inline RunConfig small(RunConfig c, int64_t layers = 1) {
  c.model.context = 8;
  c.model.width = 16;
  c.model.layers = layers;
  c.model.vocab = 128;
  c.model.dropout = 0;
  c.train.batch_size = 2;
  c.train.grad_accum = 2;
  return c;
}

inline RunConfig in(RunConfig c, DType compute) {
  c.precision.compute = compute;
  return c;
}

inline RunConfig without_masters(RunConfig c) {
  c.precision = {.compute = DType::bf16, .master = Masters::kNone};
  return c;
}

// Matrices are large enough for 8-bit states.
inline RunConfig in_8bit(RunConfig c) {
  c.model.width = 64;
  c.model.ffn = 128;
  return with_8bit(c);
}

inline RunConfig keeping_units(RunConfig c) {
  c.parallel.keeps_units = true;
  return c;
}

inline RunConfig recomputing(RunConfig c) {
  c.activations.policy = RecomputePolicy::kBlock;
  return c;
}

}  // namespace ingot
