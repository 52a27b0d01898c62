#include "ingot/profile/overlap.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ingot/core/timeline.h"

namespace ingot {
namespace {

using Clock = CommLog::Clock;

// Returns true for operations of a reducer (parallel/comm_reducer.h), without which the caller cannot
// continue.
bool is_decision(const CommLog::Event& event) {
  constexpr std::array<std::string_view, 4> kNames = {"sum", "max", "length", "text"};
  return std::ranges::find(kNames, event.name) != kNames.end();
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

double Overlap::hidden() const {
  const double hideable_s = ran_s - unhideable_s;
  if (hideable_s <= 0) return 1;
  return std::clamp(1 - (waited_s - unhideable_s) / hideable_s, 0.0, 1.0);
}

Overlap measure_overlap(const std::vector<CommLog::Event>& events, const ParallelConfig& layout,
                        int64_t steps) {
  Overlap overlap;
  for (const CommLog::Event& event : events) {
    if (is_decision(event)) {
      overlap.decisions_s += event.waited_s();
      continue;
    }
    ++overlap.operations;
    overlap.ran_s += event.ran_s();
    overlap.waited_s += event.waited_s();
  }
  if (overlap.operations == 0) return overlap;
  // Shards: the first gather and the last scatter; the sum over replicas comes after that. Replicas: the
  // last bucket. Muon: in the first round nothing computes before it, in the last nothing after it.
  int64_t unhideable = (layout.fsdp > 1 ? 2 : 0) + (layout.dp > 1 ? 1 : 0);
  for (const std::string_view first : {"muon collect 0", "muon return 0", "muon gather 0"})
    if (std::ranges::find(events, first, &CommLog::Event::name) != events.end()) ++unhideable;
  overlap.unhideable_s =
      static_cast<double>(unhideable * steps) * overlap.ran_s / static_cast<double>(overlap.operations);
  return overlap;
}

std::string chrome_trace(const std::vector<CommLog::Event>& events, Clock::time_point start, int rank) {
  ChromeTrace trace(rank);
  const auto add = [&](const std::string& track, const std::string& name, Clock::time_point begin,
                       Clock::time_point end) {
    trace.add(track, name, seconds(begin - start), seconds(end - start));
  };
  // Shorter waits are not shown as gaps in the rank's computation.
  constexpr auto kShort = std::chrono::microseconds(20);
  Clock::time_point free = start;  // end of the last wait
  for (const CommLog::Event& event : events) {
    if (event.wait_ended - event.wait_begun > kShort) {
      add("rank", "compute", free, event.wait_begun);
      add("rank", "wait: " + event.name, event.wait_begun, event.wait_ended);
      free = event.wait_ended;
    }
    add("group " + event.group, event.name, event.begun, event.ended);
  }
  return trace.lines();
}

}  // namespace ingot
