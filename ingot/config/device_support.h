// Checks a configuration for features without CUDA kernels (train.device = "cuda").
#pragma once

#include <string>

#include "ingot/config/config.h"

namespace ingot {

// Throws a kUsage error that names the key, the value and the nearest valid one.
void validate_on_cuda(const RunConfig& config);

// Throws the same error for train.graph: the step must be able to run asynchronously
// (Trainer::depth), and nothing in it except the weights may change from step to step.
void validate_graph(const RunConfig& config);

// Returns why a device has no matrix products in a format of the configuration, and what to set in its place;
// "" if it has all of them. compute_capability: ten times NVIDIA's number, so 89 stands for 8.9.
std::string lacked_format(const RunConfig& config, const std::string& device, int compute_capability);

// Returns the 8-bit formats of a device, for people: "FP8", "FP8 with one scale per tensor" or "no FP8".
std::string fp8_support(int compute_capability);

// kUsage error unless this machine and build can train the configuration on train.device, on the calling
// thread's current one if there are several; it names what is missing, as `ingot doctor` does.
void require_device(const RunConfig& config);

}  // namespace ingot
