// Agreement of all ranks on whether a piece of work succeeded: either every rank goes on, or every rank
// throws.
#pragma once

#include <functional>

#include "ingot/train/reduce.h"

namespace ingot {

// Called by all ranks, each with its own work, which must call no other rank. If the work of any rank threw,
// all ranks throw the error of the lowest such rank, whose number precedes the message if there are several
// ranks. A std::filesystem::filesystem_error counts as an Error of kind kDisk; other exceptions leave this
// rank at once.
void agree(Reducer& all, const std::function<void()>& work);

}  // namespace ingot
