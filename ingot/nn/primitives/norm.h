// LayerNorm, RMSNorm and weightless RMSNorm over rows.
#pragma once

#include "ingot/nn/config.h"
#include "ingot/nn/program/builder.h"

namespace ingot {

struct NormSpec {
  NormKind kind = NormKind::kRmsNorm;
  float eps = 0;
  int weight = -1, bias = -1;  // parameters (C); -1: none
};

// Declares prefix.weight and prefix.bias (C), as far as the norm has them.
NormSpec declare_norm(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config);

// Returns norm(x). x (n, C).
ValueId norm(Builder& b, ValueId x, const NormSpec& spec);

// True if op is a norm that norm() added.
bool is_norm(const Op& op);
// Makes a norm of x + delta out of the norm of a sum: one operation writes the sum and its norm.
Op with_addition(const Op& norm, ValueId x, ValueId delta, ValueId sum);
// The sum that the operation writes; kNoValue if it writes none.
ValueId sum_of(const Op& norm);

}  // namespace ingot
