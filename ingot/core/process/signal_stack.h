// Gives the computing threads an alternate stack for signal handlers (sigaltstack).
//
// The f32 matrix products of oneDNN before 3.11.2 (uxlfoundation/oneDNN#4845) use the stack pointer as an
// address in a heap buffer. If a signal arrives meanwhile, the kernel writes its frame there and corrupts
// memory. Signals that the program blocks (core/process/stop_signals.h) cannot do that. For other signals (a
// profiler's, MPI's), a handler installed with SA_ONSTACK runs on this stack instead.
#pragma once

namespace ingot {

// Gives the calling thread such a stack until the thread ends, unless it has one. Cheap after the first call.
void use_signal_stack();

// Gives such a stack to every thread of the pool (core/parallel.h), including the calling thread. OpenMP
// starts and ends threads as its team sizes change, so call it right before the work that needs it.
void use_signal_stacks_in_pool();

}  // namespace ingot
