// Ends this program's children, and the processes that those children leave behind.
#pragma once

namespace ingot {

// From now on, a process whose parent dies becomes a child of this process if it descends from it, so that
// end_descendants() finds it.
void adopt_orphans();

// Kills all children of this process, and those that it adopts when they end, and waits for them. Returns the
// number of processes that it killed. Children that do not end within the time (a process that waits for a
// dead disk cannot be killed) stay.
int end_descendants(double most_s);

}  // namespace ingot
