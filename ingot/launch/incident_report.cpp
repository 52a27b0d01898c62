#include "ingot/launch/incident_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "ingot/console/console.h"

namespace ingot {
namespace {

// Returns the name that most incidents have, and how many; names that are empty do not count.
std::pair<std::string, size_t> most_frequent(const std::vector<Incident>& incidents,
                                             const std::function<std::string(const Incident&)>& name) {
  std::map<std::string, size_t> counts;
  for (const Incident& incident : incidents)
    if (const std::string text = name(incident); !text.empty()) ++counts[text];
  std::pair<std::string, size_t> most;
  for (const auto& [text, count] : counts)
    if (count > most.second) most = {text, count};
  return most;
}

}  // namespace

std::string incident_summary(const std::vector<Incident>& incidents) {
  if (incidents.empty()) return "";
  std::map<std::string, int> kinds;
  int64_t steps = 0;
  double seconds = 0;
  for (const Incident& incident : incidents) {
    ++kinds[name(incident.kind)];
    steps += incident.steps_lost.value_or(0);
    seconds += incident.recovery_s.value_or(0);
  }
  std::string all;
  for (const auto& [kind, count] : kinds) all += fmt::format("{}{} {}", all.empty() ? "" : ", ", count, kind);
  const Incident& last = incidents.back();
  return fmt::format("{} incident{} ({}): {} step{} made again, {} without a step; the last: {}{}",
                     incidents.size(), incidents.size() == 1 ? "" : "s", all, steps, steps == 1 ? "" : "s",
                     format_time(seconds), describe(last), last.end.empty() ? "" : "; " + last.end);
}

std::vector<std::string> incident_advice(const std::vector<Incident>& incidents) {
  std::vector<std::string> advice;
  std::set<std::string> hosts;
  for (const Incident& incident : incidents) hosts.insert(incident.host);
  hosts.erase("");
  const auto [host, on_host] = most_frequent(incidents, [](const Incident& i) { return i.host; });
  const bool is_often = on_host >= 3 && 2 * on_host > incidents.size();
  if (is_often && hosts.size() > 1)
    advice.push_back(fmt::format("{} of {} incidents are on {}: examine it, or leave it out of --hosts",
                                 on_host, incidents.size(), host));
  const auto [rank, of_rank] = most_frequent(
      incidents, [](const Incident& i) { return i.rank ? std::to_string(*i.rank) : std::string(); });
  if (of_rank >= 3 && 2 * of_rank > incidents.size() && incidents.front().ranks.value_or(1) > 1)
    advice.push_back(fmt::format("{} of {} incidents are of rank {}: its processor or device may be faulty",
                                 of_rank, incidents.size(), rank));
  const auto again =
      std::ranges::max_element(incidents, {}, [](const Incident& i) { return i.steps_lost.value_or(0); });
  constexpr int64_t kMany = 1000;
  if (again != incidents.end() && again->steps_lost.value_or(0) >= kMany)
    advice.push_back(
        fmt::format("an incident cost {} steps: lower checkpoint.every_minutes", *again->steps_lost));
  return advice;
}

}  // namespace ingot
