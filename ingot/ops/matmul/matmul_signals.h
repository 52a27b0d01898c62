// What the library behind f32 products means for signal handlers.
#pragma once

namespace ingot {

// True if this oneDNN uses the stack pointer as an address in the heap while it computes an f32 product:
// before 3.11.2, on x86 with AVX (uxlfoundation/oneDNN#4845). The threads that compute then have an alternate
// stack for signals (core/signal_stack.h).
bool products_move_stack_pointer();

}  // namespace ingot
