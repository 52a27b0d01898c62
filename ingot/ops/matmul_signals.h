// Detects versions of the library for f32 products that disturb signal handlers.
#pragma once

namespace ingot {

// Returns true if this oneDNN uses the stack pointer as an address in the heap while it computes an f32
// product: versions before 3.11.2 on x86 with AVX (uxlfoundation/oneDNN#4845). The threads that compute
// such products then have an alternate stack for signals (core/process/signal_stack.h).
bool products_move_stack_pointer();

}  // namespace ingot
