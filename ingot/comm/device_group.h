// A group of ranks whose tensors may lie on a CUDA device. It uses NCCL if every rank has its own device,
// and otherwise copies through pinned host memory.
#pragma once

#include <memory>

#include "ingot/comm/communicator.h"
#include "ingot/core/stream.h"

namespace ingot {

// Makes such a group of the ranks of `host`, a group for host tensors; all its ranks call this. The
// result passes operations on host tensors to `host`. Borrows both arguments, which must outlive it. If
// the stream is a CPU stream, the result only forwards to `host`. `stream` is the one on which the thread
// that starts and waits reads and writes the operands.
//
// NCCL adds in its own order, in the dtype of the data: every rank gets the same bits, but not those of the
// host's groups. It has no reduce_scatter of 16-bit floats into f32 (kInternal error). Messages between two
// ranks go through the host even with NCCL, unless the group is a ring.
std::unique_ptr<Communicator> device_group(Communicator& host, Stream& stream);

// Makes a group in which rank r sends messages only to rank r + step and receives only from rank r - step
// (modulo the size). Over NCCL every pair of neighbours has a communicator and a stream of its own, so a
// receive that is started early holds up nothing else, and the host never waits. If the message of a pending
// receive depends on later work of this rank, the caller must not do anything that waits for the whole
// device, such as allocating memory. Collectives, and operations on host tensors, go through `host`.
std::unique_ptr<Communicator> device_ring(Communicator& host, int step, Stream& stream);

// Makes a device_group() without NCCL, for any stream: starting an operation blocks until the stream is done.
// The pinned memory grows to what the operations in progress at one time need. It is freed with the group.
std::unique_ptr<Communicator> staged_group(Communicator& host, Stream& stream);
std::unique_ptr<Communicator> staged_group(std::unique_ptr<Communicator> host, Stream& stream);

// Starts the operation on another group of the same ranks.
Pending relay(Communicator& group, const CommOperation& operation);

}  // namespace ingot
