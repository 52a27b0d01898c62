// deterministic: whether everything on a CUDA stream must sum in an order that shapes alone decide, so that a
// run gives the same bits again. All of ours does; attention_backward by cuDNN does not, and ours takes its
// place. On the CPU nothing else exists.
#pragma once

#include "ingot/core/stream.h"

namespace ingot {

void set_deterministic(Stream& stream, bool is_on);
bool is_deterministic(Stream& stream);

}  // namespace ingot
