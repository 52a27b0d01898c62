// A group of ranks whose tensors may lie on a CUDA device: over NCCL where every rank has a device of its
// own, else through pinned memory of the host.
#pragma once

#include <memory>

#include "ingot/comm/communicator.h"
#include "ingot/core/stream.h"

namespace ingot {

// Borrows both, which outlive it. Called by all ranks of `host`, a group that carries tensors of the host;
// on those it is handed on. On a stream of the CPU it is no more than that group. The stream is the one that
// operands are written and read on, by the thread that starts and waits.
//
// NCCL's sums are in an order of its own: the same bits on every rank, but not those of the host's groups.
// Messages and all_to_all pass through the host with it, too.
std::unique_ptr<Communicator> device_group(Communicator& host, Stream& stream);

// The same, of any stream and without NCCL: starting an operation waits for the stream. Pinned memory grows
// to what is under way at a time, and stays.
std::unique_ptr<Communicator> staged_group(Communicator& host, Stream& stream);

// Starts the operation on another group of the same ranks.
Pending relay(Communicator& group, const CommOperation& operation);

}  // namespace ingot
