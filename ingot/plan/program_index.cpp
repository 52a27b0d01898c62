#include "ingot/plan/program_index.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "ingot/core/error.h"

namespace ingot {

ProgramIndex index_program(const RankProgram& program, int rank) {
  ProgramIndex index;
  uint32_t last = 0;
  for (const ProgramOp& op : program.ops)
    if (op.kind != ProgramOp::Kind::kCompute) last = std::max(last, op.ticket);
  INGOT_CHECK(last <= program.ops.size(), "schedule: rank {}: ticket {} in a program of {} operations", rank,
              last, program.ops.size());
  index.operation_of.assign(size_t{last} + 1, -1);
  std::vector<bool> is_waited(index.operation_of.size());
  std::map<std::tuple<int, int, CommOperation::Kind>, int> known;
  for (const ProgramOp& op : program.ops) {
    const bool has_name = op.name >= 0 && static_cast<size_t>(op.name) < program.names.size();
    INGOT_CHECK(has_name, "schedule: rank {}: name {} of {}", rank, op.name, program.names.size());
    if (op.kind == ProgramOp::Kind::kCompute) {
      INGOT_CHECK(std::isfinite(op.seconds) && op.seconds >= 0, "schedule: rank {}: '{}' takes {} s", rank,
                  program.names[static_cast<size_t>(op.name)], op.seconds);
      continue;
    }
    int& operation = index.operation_of[op.ticket];
    if (op.kind == ProgramOp::Kind::kWait) {
      INGOT_CHECK(operation >= 0, "schedule: rank {} waits for ticket {} before its start", rank, op.ticket);
      INGOT_CHECK(!is_waited[op.ticket], "schedule: rank {} waits for ticket {} twice", rank, op.ticket);
      is_waited[op.ticket] = true;
      continue;
    }
    INGOT_CHECK(operation < 0, "schedule: rank {} starts ticket {} twice", rank, op.ticket);
    INGOT_CHECK(op.group >= 0, "schedule: rank {} starts an operation in group {}", rank, op.group);
    index.groups = std::max(index.groups, op.group + 1);
    const auto [found, is_new] =
        known.try_emplace({op.group, op.name, op.operation}, static_cast<int>(index.operations.size()));
    if (is_new) index.operations.push_back({op.group, op.name, op.operation});
    operation = found->second;
  }
  return index;
}

}  // namespace ingot
