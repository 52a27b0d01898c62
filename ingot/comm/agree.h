// agree() makes all ranks agree on whether an operation succeeded: either every rank continues, or every
// rank throws.
#pragma once

#include <functional>

#include "ingot/comm/communicator.h"

namespace ingot {

// All ranks call this, each with its own `work`, which must not communicate with other ranks. If `work`
// throws on any rank, every rank throws the error of the lowest such rank; with several ranks, the
// message is prefixed with that rank's number. A std::filesystem::filesystem_error counts as an Error of
// kind kDisk. Any other exception propagates on its rank at once.
void agree(Communicator& all, const std::function<void()>& work);

}  // namespace ingot
