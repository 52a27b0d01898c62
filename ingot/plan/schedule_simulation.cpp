#include "ingot/plan/schedule_simulation.h"

#include <algorithm>

#include "ingot/core/error.h"
#include "ingot/plan/schedule_run.h"

namespace ingot {

ScheduleRun::ScheduleRun(const RankPrograms& job, const Hardware& hardware, const ScheduleOptions& options)
    : job_(job),
      network_(hardware, static_cast<int>(job.programs.size())),
      fluid_(network_.capacities()),
      ranks_(job.programs.size()) {
  check_groups();
  outcome_.ranks.resize(ranks_.size());
  for (const std::vector<int>& members : job.members) queues_.emplace_back().ranks = members;
  for (size_t r = 0; r < ranks_.size(); ++r) prepare(static_cast<int>(r));
  for (const int rank : options.timeline_ranks) {
    INGOT_CHECK(rank >= 0 && static_cast<size_t>(rank) < ranks_.size(),
                "schedule: a timeline of rank {} of {}", rank, ranks_.size());
    outcome_.timelines.push_back({.rank = rank, .spans = {}});
  }
  for (RankTimeline& timeline : outcome_.timelines) at(timeline.rank).timeline = &timeline;
}

void ScheduleRun::check_groups() const {
  const auto ranks = static_cast<int>(job_.programs.size());
  INGOT_CHECK(job_.groups.size() == job_.programs.size(), "schedule: groups of {} ranks, programs of {}",
              job_.groups.size(), ranks);
  for (size_t g = 0; g < job_.members.size(); ++g) {
    std::vector<int> members = job_.members[g];
    std::ranges::sort(members);
    INGOT_CHECK(!members.empty() && members.front() >= 0 && members.back() < ranks &&
                    std::ranges::adjacent_find(members) == members.end(),
                "schedule: the members of group {} must be different ranks in 0 .. {}", g, ranks - 1);
  }
  for (int r = 0; r < ranks; ++r) {
    std::vector<int> own = job_.groups[static_cast<size_t>(r)];
    std::ranges::sort(own);
    INGOT_CHECK(std::ranges::adjacent_find(own) == own.end(), "schedule: rank {} lists a group twice", r);
    for (const int g : own) {
      INGOT_CHECK(g >= 0 && static_cast<size_t>(g) < job_.members.size(), "schedule: rank {}: group {} of {}",
                  r, g, job_.members.size());
      const std::vector<int>& members = job_.members[static_cast<size_t>(g)];
      INGOT_CHECK(std::ranges::find(members, r) != members.end(), "schedule: rank {} is not in its group {}",
                  r, g);
    }
  }
}

void ScheduleRun::prepare(int rank) {
  const auto r = static_cast<size_t>(rank);
  const RankProgram* program = job_.programs[r].get();
  INGOT_CHECK(program, "schedule: rank {} has no program", rank);
  auto found = indices_.find(program);
  if (found == indices_.end()) found = indices_.emplace(program, index_program(*program, rank)).first;
  const ProgramIndex& index = found->second;
  INGOT_CHECK(static_cast<size_t>(index.groups) <= job_.groups[r].size(),
              "schedule: rank {} uses group {} and has {}", rank, index.groups - 1, job_.groups[r].size());
  RankState& state = ranks_[r];
  state.program = program;
  state.index = &index;
  state.started.resize(job_.groups[r].size());
  state.operation_of.assign(index.operation_of.size(), -1);
  for (const ProgramIndex::Operation& op : index.operations)
    outcome_.ranks[r].waits.push_back(
        {.group = op.group, .name = program->names[static_cast<size_t>(op.name)], .kind = op.kind});
}

// Names a rank that has not started the operation, or the operation before it in its queue that has not
// begun.
std::string ScheduleRun::missing(const Started& op) {
  const Queue& queue = this->queue(op.queue);
  const Started& next = operation(queue.operations[std::min<size_t>(queue.begun, op.number)]);
  const std::string which =
      next.number == op.number ? "which" : fmt::format("and '{}' before it", name_of(next));
  if (queue.message)
    return fmt::format("{} rank {} has not started", which, queue.ranks[queue.sent > next.number ? 1 : 0]);
  for (const int rank : queue.ranks) {
    const std::vector<int>& groups = job_.groups[static_cast<size_t>(rank)];
    uint32_t count = 0;
    for (size_t k = 0; k < groups.size(); ++k)
      if (groups[k] == op.queue) count = std::max(count, at(rank).started[k]);
    if (count <= next.number) return fmt::format("{} rank {} has not started", which, rank);
  }
  return which + " has not begun";
}

void ScheduleRun::check_done() {
  constexpr int kMax = 16;
  int count = 0;
  std::string waiting;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    const RankState& state = at(r);
    if (state.next == state.program->ops.size() || ++count > kMax) continue;
    const ProgramOp& wait = state.program->ops[state.next];
    const ProgramIndex::Operation& named =
        state.index->operations[static_cast<size_t>(state.index->operation_of[wait.ticket])];
    waiting += fmt::format("; rank {}: {} '{}', {}", r, kind_name(named.kind),
                           state.program->names[static_cast<size_t>(named.name)],
                           missing(operation(state.operation_of[wait.ticket])));
  }
  if (count > kMax) waiting += fmt::format("; and {} more ranks", count - kMax);
  INGOT_CHECK(waiting.empty(), "schedule: ranks wait for each other{}", waiting);
  for (const Started& op : started_)
    INGOT_CHECK(op.end_s >= 0, "schedule: {} '{}' of rank {} never begins, {}", kind_name(op.kind),
                name_of(op), op.first_rank, missing(op));
}

void ScheduleRun::finish() {
  for (const RankState& state : ranks_) outcome_.step_s = std::max(outcome_.step_s, state.now_s);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    outcome_.ranks[r].done_s = ranks_[r].now_s;
    outcome_.ranks[r].idle_s += outcome_.step_s - ranks_[r].now_s;
    RankTimeline* timeline = ranks_[r].timeline;
    if (!timeline) continue;
    for (size_t s = 0; s < timeline->spans.size(); ++s) {
      const int id = ranks_[r].span_operations[s];
      if (id < 0) continue;
      timeline->spans[s].begin_s = operation(id).begin_s;
      timeline->spans[s].end_s = operation(id).end_s;
    }
    std::ranges::stable_sort(timeline->spans, {}, &TimelineSpan::begin_s);
  }
}

double ScheduleOutcome::bubble() const {
  double idle_s = 0;
  for (const RankOutcome& rank : ranks) idle_s += rank.idle_s;
  return step_s > 0 ? idle_s / (step_s * static_cast<double>(ranks.size())) : 0;
}

double ScheduleOutcome::exposed() const {
  double exposed_s = 0;
  for (const RankOutcome& rank : ranks) exposed_s += rank.exposed_s;
  return step_s > 0 ? exposed_s / (step_s * static_cast<double>(ranks.size())) : 0;
}

ScheduleOutcome simulate_schedule(const RankPrograms& job, const Hardware& hardware,
                                  const ScheduleOptions& options) {
  return ScheduleRun(job, hardware, options).run();
}

}  // namespace ingot
