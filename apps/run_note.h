// A word on stderr about the run that a model comes from.
#pragma once

#include <string>

namespace ingot {

// "note: the run runs/demo died at step 120 (pid 4711 is gone), ..." where the folder is that of a run that
// was not completed; nothing otherwise.
void note_on_run(const std::string& model);

}  // namespace ingot
