// The cap of logits (model.cap) as a function on the host; ops/loss has it for the loss.
#pragma once

#include <cmath>

#include "ingot/nn/config.h"

namespace ingot {

inline double apply_cap(const LogitCapConfig& cap, double x) {
  switch (cap.kind) {
    case LogitCap::kTanh:
      return cap.a * std::tanh(x / cap.a);
    case LogitCap::kSigmoid:
      return cap.a / (1 + std::exp(-(x + cap.b) / cap.c));
    case LogitCap::kNone:
      break;
  }
  return x;
}

// Returns the cap's derivative where its value is z.
inline double cap_slope(const LogitCapConfig& cap, double z) {
  switch (cap.kind) {
    case LogitCap::kTanh:
      return 1 - z / cap.a * (z / cap.a);
    case LogitCap::kSigmoid:
      return z * (1 - z / cap.a) / cap.c;
    case LogitCap::kNone:
      break;
  }
  return 1;
}

}  // namespace ingot
