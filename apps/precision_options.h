// The options of `ingot eval` and `ingot generate` that choose number formats.
#pragma once

#include <optional>
#include <string>

#include "ingot/core/dtype.h"

namespace ingot {

class Command;

// The values of --compute and --weights; empty ones were not given.
struct PrecisionOptions {
  std::string compute, weights;

  void add_to(Command& command);
  // Return what the values stand for, or throw a kUsage error.
  std::optional<DType> compute_dtype() const;
  bool has_int8_weights() const;
};

}  // namespace ingot
