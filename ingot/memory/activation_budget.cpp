#include "ingot/memory/activation_budget.h"

#include <algorithm>
#include <array>

#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr int64_t kParts = 8;

// Returns the bytes of the run's activations on the rank that has the most.
int64_t activation_bytes(const RunConfig& config, const Mesh& mesh) {
  std::array<double, 1> most{};
  for (const MemoryItem& item : plan_memory(config, mesh.shape, mesh.world->rank()).items)
    if (item.name == "activations") most[0] += static_cast<double>(item.bytes);
  mesh.world->max(most);
  return static_cast<int64_t>(most[0]);
}

// Returns true if the run fits into memory. A budget that is too small for any plan does not.
bool fits(const RunConfig& config, const Mesh& mesh, const MemoryLimits& limits) {
  try {
    return check_memory(config, mesh, limits).empty();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUsage) throw;
    return false;
  }
}

}  // namespace

RecomputeConfig with_activation_budget(const RunConfig& config, const Mesh& mesh,
                                       const MemoryLimits& limits) {
  const RecomputeConfig& given = config.activations;
  if (given.policy != RecomputePolicy::kAuto || given.budget_bytes > 0) return given;
  RunConfig tried = config;
  tried.train.is_overcommitted = true;  // check_memory then reports, and throws nothing
  if (fits(tried, mesh, limits)) return given;
  const int64_t all_bytes = activation_bytes(config, mesh);
  for (int64_t part = kParts - 1; part > 0; --part) {
    tried.activations.budget_bytes = std::max<int64_t>(1, all_bytes / kParts * part);
    if (fits(tried, mesh, limits)) return tried.activations;
  }
  return given;
}

}  // namespace ingot
