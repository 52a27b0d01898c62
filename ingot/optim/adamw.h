// AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101), with clipping and the cast to the compute dtype in the
// same pass over memory:
//   g' = g * grad_scale
//   m = lerp(m, g', 1 - beta1);  v = lerp(v, g'^2, 1 - beta2)
//   w = w * (1 - lr * weight_decay) - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
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

// What one update needs beside the tensors.
struct AdamWStep {
  double lr;            // of this step
  double weight_decay;  // of these parameters
  int64_t t;            // 1 at the first update
  float grad_scale;     // clipping; 1: none
};

// One flat range of n elements: w, m, v (n) f32 are updated, g (n) f32 is read and set to zero; with a
// bf16 `compute` (n) the new w is stored there rounded to nearest even. 32 bytes per element moved (34 with
// the cast). Elementwise, so the result does not depend on the number of threads.
void adamw_update(const Tensor& w, const Tensor& compute, const Tensor& m, const Tensor& v, const Tensor& g,
                  const AdamWConfig& config, const AdamWStep& step, Stream& stream);

// One parameter, or any range of parameters that are treated alike.
struct ParamRange {
  std::string name;
  Tensor w;                // (n) f32
  Tensor compute;          // (n) bf16, or absent
  Tensor g;                // (n) f32
  bool has_decay = false;  // weight decay
};

// The optimizer over all ranges of a model: its state, the global norm, one pass per step.
class AdamW {
 public:
  AdamW(const AdamWConfig& config, std::vector<ParamRange> ranges);

  // Norm of all gradients, in an order that depends on the ranges' sizes only.
  double grad_norm(Stream& stream);
  // One update with g * grad_scale; leaves every g zero.
  void step(double lr, float grad_scale, Stream& stream);

  struct State {
    std::string name;
    Tensor m, v;  // (n) f32
  };
  const std::vector<State>& states() const { return states_; }  // in order of the ranges
  const Arena& arena() const { return arena_; }
  int64_t t() const { return t_; }  // updates made
  void set_t(int64_t t) { t_ = t; }

 private:
  // A piece of one range: what a thread takes at a time.
  struct Block {
    size_t range;
    int64_t begin, end;
  };

  AdamWConfig config_;
  std::vector<ParamRange> ranges_;
  Arena arena_;
  std::vector<State> states_;
  std::vector<Block> blocks_;
  std::vector<double> squares_;  // per block
  int64_t t_ = 0;
};

}  // namespace ingot
