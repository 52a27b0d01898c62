// The options of `ingot eval` and `ingot generate` that choose number formats and the device.
#pragma once

#include <optional>
#include <string>

#include "ingot/core/dtype.h"
#include "ingot/core/tensor.h"

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

// Returns the device that --device names, or throws a kUsage error.
Device device_of(const std::string& name);

}  // namespace ingot
