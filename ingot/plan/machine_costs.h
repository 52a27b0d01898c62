// Measures the costs of operations on this machine, once, on a smaller form of the run's own model, and keeps
// them in a cache.
#pragma once

#include <filesystem>
#include <vector>

#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/plan/op_costs.h"

namespace ingot {

struct MeasuredForm {
  RunConfig config;         // fewer layers, rows and micro-batches
  double tokens_ratio = 1;  // tokens of its micro-batch / tokens of the run's
};

// Returns the form of the configuration that is measured: enough layers for every kind of operation, and a
// micro-batch that takes about a second.
MeasuredForm measured_form(const RunConfig& config);

// Sharing describes how the ranks share the machine: `threads` is the number of threads of each, and `ranks`
// of them measure at the same time, because they share cores, caches and memory.
struct Sharing {
  int threads = 1, ranks = 1;
};

// Measures the operations of a rank. unit_costs: as in KnownToRanks.
// folder: where the measurements of this build are kept; empty for none. A measurement is valid for one
// processor, number of threads and form.
MeasuredCosts machine_costs(const RunConfig& config, const MeshShape& shape, int rank, const Sharing& sharing,
                            const std::vector<double>& unit_costs, const std::filesystem::path& folder,
                            const std::function<void(const std::string& what)>& on_measuring = {});

// XDG_CACHE_HOME/ingot/plan, or ~/.cache/ingot/plan; empty if neither variable is set.
std::filesystem::path plan_cache_folder();

}  // namespace ingot
