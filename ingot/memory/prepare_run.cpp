#include "ingot/memory/prepare_run.h"

#include <utility>

#include "ingot/memory/activation_budget.h"

namespace ingot {

PreparedRun prepare_run(RunConfig config, const Mesh& mesh, const MemoryLimits& limits) {
  PreparedRun run{.config = std::move(config), .note = {}, .warning = {}};
  run.note = no_room_for_copy(run.config, mesh, limits);
  run.config.checkpoint.has_room = run.note.empty();
  run.config.activations = with_activation_budget(run.config, mesh, limits);
  run.warning = check_memory(run.config, mesh, limits);
  return run;
}

}  // namespace ingot
