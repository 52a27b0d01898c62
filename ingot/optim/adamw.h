// AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101), with clipping and the cast to the compute dtype in the
// same pass over memory:
//   g' = g * grad_scale
//   m = lerp(m, g', 1 - beta1);  v = lerp(v, g'^2, 1 - beta2)
//   w = w * (1 - lr * weight_decay) - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
#pragma once

#include <cstdint>

#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

struct AdamWConfig {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of parameters of two dims; norms and biases have none
  double grad_clip = 1.0;     // global norm; 0: off
  void validate() const;
};

// What one step needs beside the tensors.
struct AdamWStep {
  double lr;            // of this step
  double weight_decay;  // of these parameters
  int64_t t;            // 1 at the first update
  float grad_scale;     // clipping; 1: none
};

// One flat range of n elements: w, m, v (n) f32 are updated, g (n) f32 is read and set to zero; with a
// bf16 `compute` (n) the new w is stored there rounded to nearest even. 28 bytes per element moved (30 with
// the cast). Elementwise, so the result does not depend on the number of threads.
void adamw_update(const Tensor& w, const Tensor& compute, const Tensor& m, const Tensor& v, const Tensor& g,
                  const AdamWConfig& config, const AdamWStep& step, Stream& stream);

// Sum of squares of n f32 elements in double, in an order that depends only on n (blocks of 4096).
double sum_of_squares(const Tensor& x, Stream& stream);

}  // namespace ingot
