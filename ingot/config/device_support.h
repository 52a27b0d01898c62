// Checks a configuration for features without CUDA kernels (train.device = "cuda").
#pragma once

#include "ingot/config/config.h"

namespace ingot {

// Throws a kUsage error that names the key, the value and the nearest valid one.
void validate_on_cuda(const RunConfig& config);

// Throws the same error for train.graph: the step must be able to run asynchronously
// (Trainer::depth), and nothing in it except the weights may change from step to step.
void validate_graph(const RunConfig& config);

// kUsage error unless this machine and build can train on the device; it names what is missing, as `ingot
// doctor` does.
void require_device(Device device);

}  // namespace ingot
