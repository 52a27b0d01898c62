// Finds the newest checkpoint whose files are as its manifest says, whatever numbers are in them.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "ingot/checkpoint/checkpoint_store.h"

namespace ingot {

// Passes what is wrong with newer ones to `report`, unless it is null.
inline std::optional<Checkpoint> newest_good_checkpoint(const std::filesystem::path& folder,
                                                        const DamageReport& report) {
  for (const Checkpoint& found : list_checkpoints(folder)) {
    const std::vector<ManifestProblem> problems = verify_checkpoint(found.path);
    if (problems.empty()) return found;
    for (const ManifestProblem& problem : problems)
      if (report) report(found.path, problem.file + " " + problem.what);
  }
  return std::nullopt;
}

}  // namespace ingot
