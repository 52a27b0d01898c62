// Prints a note on stderr about the run that a model comes from.
#pragma once

#include <string>

namespace ingot {

// Prints "note: the run runs/demo died at step 120 (pid 4711 is gone), ..." if the folder belongs to a run
// that was not completed; otherwise nothing.
void note_on_run(const std::string& model);

}  // namespace ingot
