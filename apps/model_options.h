// The options of `ingot eval`, `generate` and `chat` that say how a model is loaded and sampled.
#pragma once

#include <string>

#include "ingot/checkpoint/served_model.h"
#include "ingot/ops/sample.h"

namespace ingot {

class Command;

// The values of --device, --compute, --weights and --ema. Empty texts were not given.
struct ModelOptions {
  std::string device = "cpu", compute, weights;
  bool is_averaged = false;

  void add_to(Command& command);
  // Returns what the values stand for, or throws a kUsage error.
  ServedOptions served() const;
};

// Adds --temperature, --top-k and --top-p. REQUIRES: the target outlives the parsing.
void add_sample_options(Command& command, SampleConfig& sample);

}  // namespace ingot
