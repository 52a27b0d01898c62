// A run that a simulated device trains in a second.
#pragma once

#include "ingot/config/config.h"

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

}  // namespace ingot
