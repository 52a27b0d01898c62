#include "apps/run_note.h"

#include <fmt/core.h>

#include <cstdio>

#include "ingot/core/visible_text.h"
#include "ingot/run/record/run_status.h"

namespace ingot {

void note_on_run(const std::string& model) {
  const std::string note = note_of_run(model);
  if (!note.empty()) fmt::print(stderr, "note: {}\n", visible_line(note));
}

}  // namespace ingot
