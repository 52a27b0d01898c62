#include "ingot/plan/job.h"

#include <algorithm>
#include <cctype>

#include "ingot/optim/optimizer_config.h"
#include "ingot/optim/rules/all_rules.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/plan/dry_step.h"

namespace ingot {
namespace {

// Consecutive computations of one name become one operation.
void append(RankProgram& program, const ProgramOp& op) {
  if (!program.ops.empty()) {
    ProgramOp& last = program.ops.back();
    if (op.kind == ProgramOp::Kind::kCompute && last.kind == op.kind && last.name == op.name) {
      last.seconds += op.seconds;
      return;
    }
  }
  program.ops.push_back(op);
}

std::shared_ptr<const RankProgram> make_program(const StepRecord& record, const OpCosts& costs) {
  std::vector<double> seconds;
  for (const OpKey& key : record.keys) seconds.push_back(costs.seconds(key));
  auto program = std::make_shared<RankProgram>();
  program->names = record.names;
  for (const RecordedOp& recorded : record.ops) {
    ProgramOp op = recorded.op;
    if (recorded.key >= 0) op.seconds = seconds[static_cast<size_t>(recorded.key)];
    append(*program, op);
  }
  return program;
}

// The axes of a group that a trainer has made of another group keep that group's ranks.
const MeshGroup& axes_of(const std::string& name) {
  for (const MeshGroup& group : mesh_groups())
    if (name == group.name) return group;
  for (const MeshGroup& group : mesh_groups())
    if (name.starts_with(std::string(group.name) + " ")) return group;
  fail(ErrorKind::kInternal, "job: the group {} is no part of a mesh", name);
}

std::string without_numbers(const std::string& name) {
  std::string text;
  for (const char c : name)
    if (!std::isdigit(static_cast<unsigned char>(c)) && !(c == ' ' && text.ends_with(' '))) text += c;
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

bool has_matrix_rule(const OptimizerConfig& optimizer) {
  const auto is_matrix_rule = [&](const RuleConfig& rule) {
    return resolve_rule(rule, optimizer.rule).is_matrix_rule;
  };
  return is_matrix_rule(optimizer.rule) ||
         std::ranges::any_of(optimizer.groups, is_matrix_rule, &GroupConfig::rule);
}

}  // namespace

std::vector<int> rank_classes(const RunConfig& config, const MeshShape& shape) {
  const bool differs = has_matrix_rule(config.optimizer) && shape.size() > shape.pp;
  // Shards of an embedding that two stages hold have their own sizes.
  const bool has_shards = shape.pp > 1 && shape.dp_shard > 1 && config.model.is_tied;
  std::map<std::pair<int, int>, int> known;  // classes are numbered in the order of their first ranks
  std::vector<int> classes;
  for (int rank = 0; rank < shape.size(); ++rank) {
    const MeshPlace place = place_of(shape, rank);
    const std::pair<int, int> kind =
        differs ? std::pair(rank, 0) : std::pair(place.stage, has_shards ? place.shard : 0);
    classes.push_back(known.try_emplace(kind, static_cast<int>(known.size())).first->second);
  }
  return classes;
}

void tell_all_ranks(const RunConfig& config, const MeshShape& shape, const KnownToRanks& known) {
  if (!has_matrix_rule(config.optimizer) || shape.size() == shape.pp) return;
  for (int round = 0; round < 2; ++round)
    for (int rank = 0; rank < shape.size(); ++rank) tell_others(config, shape, rank, known);
}

std::string programs_text(const RunConfig& config) {
  const MeshShape shape = mesh_shape(config.parallel);
  std::string text;
  int stages = 0;
  for (int rank = 0; rank < shape.size(); ++rank) {
    if (place_of(shape, rank).stage < stages) continue;
    ++stages;
    text += fmt::format("rank {}, ", rank) + text_of_programs(config, shape, rank);
  }
  return text;
}

JobRecord record_job(const RunConfig& config, const std::vector<double>& unit_costs) {
  JobRecord job;
  job.shape = mesh_shape(config.parallel);
  job.class_of = rank_classes(config, job.shape);
  PlanBoard board;
  const KnownToRanks known{.board = &board, .unit_costs = unit_costs};
  tell_all_ranks(config, job.shape, known);
  for (int rank = 0; rank < job.shape.size(); ++rank) {
    if (job.class_of[static_cast<size_t>(rank)] < std::ssize(job.ranks)) continue;
    job.ranks.push_back(rank);
    job.records.push_back(record_step(config, job.shape, rank, known));
  }
  return job;
}

RankPrograms make_programs(const JobRecord& job, const std::function<const OpCosts&(int)>& costs) {
  std::vector<std::shared_ptr<const RankProgram>> programs;
  for (size_t c = 0; c < job.records.size(); ++c)
    programs.push_back(make_program(job.records[c], costs(static_cast<int>(c))));
  RankPrograms all;
  std::map<std::pair<std::string, int>, int> index;  // of a group by its name and first rank
  for (int rank = 0; rank < job.shape.size(); ++rank) {
    const auto own = static_cast<size_t>(job.class_of[static_cast<size_t>(rank)]);
    all.programs.push_back(programs[own]);
    std::vector<int>& groups = all.groups.emplace_back();
    for (size_t g = 0; g < job.records[own].groups.size(); ++g) {
      const RecordedGroup& group = job.records[own].groups[g];
      std::vector<int> members = group_ranks(job.shape, rank, axes_of(group.name).axes);
      std::erase_if(members, [&](int other) {
        return job.records[static_cast<size_t>(job.class_of[static_cast<size_t>(other)])].groups[g] != group;
      });
      const auto [at, is_new] =
          index.try_emplace({group.name, members.front()}, static_cast<int>(all.members.size()));
      if (is_new) all.members.push_back(std::move(members));
      groups.push_back(at->second);
    }
  }
  return all;
}

std::map<std::string, double> time_by_part(const StepRecord& record, const OpCosts& costs) {
  std::map<std::string, double> parts;
  for (const RecordedOp& op : record.ops)
    if (op.key >= 0)
      parts[without_numbers(record.names[static_cast<size_t>(op.op.name)])] +=
          costs.seconds(record.keys[static_cast<size_t>(op.key)]);
  return parts;
}

}  // namespace ingot
