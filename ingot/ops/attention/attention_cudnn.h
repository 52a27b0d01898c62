// Attention on a CUDA device with cuDNN's flash kernels, which use tensor cores. Internal to ops:
// ops/attention tries these first in builds with cuDNN (kHasCudnn).
//
// cuDNN sums dq with atomics, so its last bits differ from run to run; deterministic streams
// (ops/deterministic.h) therefore do not use it. Its own deterministic mode would keep all scores in 16 bits,
// as the plans of 9.19 and 9.26 for a graph without the sums show: 100 MB for 4 x 12 heads of 1024 tokens.
// Masked keys are multiplied by a probability of 0, so a NaN among them reaches the result.
#pragma once

#include <string>

#include "ingot/ops/attention.h"

namespace ingot {

#ifdef INGOT_WITH_CUDNN
inline constexpr bool kHasCudnn = true;
#else
inline constexpr bool kHasCudnn = false;
#endif

namespace cudnn {

// Returns true if the library can be loaded.
bool is_available();
std::string version();  // "9.19.0"; empty unless is_available()

// As the functions of ops/attention, but they may do nothing and return the reason: if cuDNN is
// missing or has no kernel for the call, if the stream of backward is deterministic, or if the scratch
// is smaller than what ops/attention requests with cuDNN. Otherwise they return "". The first call with new
// shapes or strides takes about a second.
std::string attention_forward(const AttentionOperands& t, const AttentionConfig& config,
                              const Tensor& scratch, Stream& stream);
std::string attention_backward(const AttentionGradients& d, const AttentionOperands& t,
                               const AttentionConfig& config, const Tensor& scratch, Stream& stream);

}  // namespace cudnn
}  // namespace ingot
