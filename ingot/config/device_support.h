// What of a configuration has no kernels on a CUDA device (train.device = "cuda").
#pragma once

#include "ingot/config/config.h"

namespace ingot {

// Throws a kUsage error that names the key, the value and the nearest valid one.
void validate_on_cuda(const RunConfig& config);

// The same for train.graph: a step must be one that the device judges (Trainer::give), and nothing in it but
// the weights may change from step to step.
void validate_graph(const RunConfig& config);

// The same unless this machine and build can train on the device, naming what is missing as `ingot doctor`
// does.
void require_device(Device device);

}  // namespace ingot
