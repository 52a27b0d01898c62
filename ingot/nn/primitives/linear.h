// Linear layers: y (N, out) = x (N, in) · wᵀ + b, whose weights are split over the tensor-parallel ranks.
// With an adapter (LoRA: Hu et al. 2021, arXiv:2106.09685) y = x · wᵀ + (alpha / rank) (x · aᵀ) · bᵀ + bias,
// where a and b are trained.
#pragma once

#include "ingot/nn/fp8_linear.h"
#include "ingot/nn/program/builder.h"

namespace ingot {

// A declared linear layer.
struct LinearLayer {
  int weight = -1, bias = -1;  // parameters (out, in) and (out); -1: none
  int64_t out = 0, in = 0;     // on this rank
  Split split = Split::kOutputs;
  bool is_bias_activated = false;  // the activation after it adds the bias
  Fp8Linear fp8 = {};
  float scale = 1;                        // multiplies x · wᵀ
  bool is_whole = false;                  // every tensor-parallel rank has all of the weight
  std::vector<LinearLayer> adapter = {};  // a (rank, in) and b (out, rank); empty: none
};

// Declares prefix.weight (out, in) and, with has_bias, prefix.bias (out), which starts at zero.
LinearLayer declare_linear(ParamList& params, const LinearSpec& spec, const TensorParallel& tp);
// Declares the layer's adapter prefix.lora_a (rank, in), which starts with PEFT's standard deviation of 1 /
// sqrt(3 in), and prefix.lora_b (out, rank), which starts at zero. spec: the layer's own.
void declare_adapter(LinearLayer& layer, ParamList& params, const LinearSpec& spec, const LoraConfig& lora,
                     const TensorParallel& tp);
// Makes it train in FP8 if the config converts it, and appends the names of its tensors to `tensors`.
void use_fp8(LinearLayer& layer, const ParamList& params, const Fp8LinearConfig& config,
             const TensorParallel& tp, std::vector<std::string>& tensors);

// Returns the layer's output, summed over the ranks if its inputs are split.
ValueId linear(Builder& b, ValueId x, const LinearLayer& layer);

// Rewrites of a device's products (program/fuse.cpp). They return false, and change nothing, for an operation
// to which they do not apply.
bool takes_bias(Op& product, const Op& bias);
bool takes_addition(Op& product, ValueId x, ValueId sum);
// up: the product before the activation; down: the one after it.
bool takes_gelu(Op& up, const Op& activation, const Op& down);

// Returns the FP8 tensor (Fp8State) as which a product casts its first operand by an amax that an earlier
// operation can raise;
// -1: none.
int cast_tensor(const Op& op);
// True if an operation sums the columns of the gradient `in` and can raise its amax.
bool sums_columns_of(const Op& op, ValueId in);

}  // namespace ingot
