// An alternate stack for signal handlers (sigaltstack) on the threads that compute.
//
// The f32 matrix products of oneDNN before 3.11.2 (uxlfoundation/oneDNN#4845) use the stack pointer as an
// address in a heap buffer. The frame of a signal that arrives meanwhile is written there and destroys
// memory. Signals that the program blocks (core/stop_signals.h) do no harm; for the others (a profiler's,
// MPI's) a handler that is installed with SA_ONSTACK runs on this stack instead.
#pragma once

namespace ingot {

// Gives the calling thread such a stack until it ends, unless it has one. Cheap after the first call.
void use_signal_stack();

// Gives one to every thread of the pool (core/parallel.h), the calling thread included. OpenMP ends and
// starts threads as the sizes of its teams change: call it right before the work that needs it.
void use_signal_stacks_in_pool();

}  // namespace ingot
