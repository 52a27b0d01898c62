// Deterministic mode: every sum on a CUDA stream has an order that depends on the shapes only, so a run
// reproduces its bits. All of Ingot's kernels satisfy this always; cuDNN's attention_backward does not,
// so Ingot's own kernel replaces it in this mode. The CPU is always deterministic.
#pragma once

#include "ingot/core/stream.h"

namespace ingot {

void set_deterministic(Stream& stream, bool is_on);
bool is_deterministic(Stream& stream);

}  // namespace ingot
