// Attention on a CUDA device by cuDNN's flash kernels, with tensor cores. Internal to ops: ops/attention asks
// here first, where it is compiled with cuDNN (kHasCudnn).
//
// dq is added up by atomics, so its last bits differ from run to run: not for a deterministic stream
// (ops/deterministic.h). Keys behind the mask are multiplied by a probability of 0: NaN among them is not
// kept out.
#pragma once

#include "ingot/ops/attention.h"

namespace ingot {

#ifdef INGOT_WITH_CUDNN
inline constexpr bool kHasCudnn = true;
#else
inline constexpr bool kHasCudnn = false;
#endif

namespace cudnn {

// Whether the library can be loaded.
bool is_available();

// As ops/attention's, but for: false where cuDNN is missing or has no kernel for it, where backward's stream
// is deterministic, or where the scratch is less than ops/attention asks for where cuDNN has a kernel;
// nothing is done then. The first call with new shapes or strides takes about a second.
bool attention_forward(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& doc_start, const AttentionConfig& config,
                       const Tensor& scratch, Stream& stream);
bool attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& d_out,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const Tensor& lse, const Tensor& doc_start, const AttentionConfig& config,
                        const Tensor& scratch, Stream& stream);

}  // namespace cudnn
}  // namespace ingot
