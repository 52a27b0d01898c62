#include "ingot/plan/schedule_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "ingot/core/error.h"

namespace ingot {
namespace {

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out;
}

std::string share_row(const std::string& what, double busy_s, double exposed_s, double idle_s,
                      double step_s) {
  const auto percent = [&](double s) { return step_s > 0 ? 100 * s / step_s : 0; };
  return fmt::format("  {:<16} {:>8.1f} % {:>8.1f} % {:>8.1f} %\n", what, percent(busy_s), percent(exposed_s),
                     percent(idle_s));
}

}  // namespace

std::string schedule_table(const ScheduleOutcome& outcome, const std::string& title) {
  INGOT_CHECK(!outcome.ranks.empty(), "schedule_table: an outcome without ranks");
  const auto count = static_cast<double>(outcome.ranks.size());
  std::string text = fmt::format("{}: step {}\n  {:<16} {:>10} {:>10} {:>10}\n", title,
                                 seconds_text(outcome.step_s), "", "computes", "exposed", "bubble");
  double busy_s = 0, exposed_s = 0, idle_s = 0;
  for (const RankOutcome& rank : outcome.ranks) {
    busy_s += rank.busy_s / count;
    exposed_s += rank.exposed_s / count;
    idle_s += rank.idle_s / count;
  }
  text += share_row("all ranks", busy_s, exposed_s, idle_s, outcome.step_s);
  const auto [least, most] = std::ranges::minmax_element(outcome.ranks, {}, &RankOutcome::idle_s);
  for (const auto& rank : {least, most})
    text += share_row(fmt::format("rank {}", rank - outcome.ranks.begin()), rank->busy_s, rank->exposed_s,
                      rank->idle_s, outcome.step_s);
  text += fmt::format("  {:<16} {:>10} {:>12} {:>14} {:>14} {:>8}\n", "operations", "count", "MB",
                      "time per rank", "exposed", "hidden");
  for (size_t k = 0; k < kCommKinds; ++k) {
    const KindOutcome& kind = outcome.kinds[k];
    if (kind.operations == 0) continue;
    const auto named = static_cast<CommOperation::Kind>(k);
    text += fmt::format("  {:<16} {:>10} {:>12.1f} {:>14} {:>14} {:>6.1f} %\n",
                        named == CommOperation::Kind::kSend ? "messages" : kind_name(named), kind.operations,
                        static_cast<double>(kind.bytes) / 1e6, seconds_text(kind.ran_s / count),
                        seconds_text(kind.exposed_s / count),
                        kind.ran_s > 0 ? 100 * kind.hidden_s() / kind.ran_s : 100.0);
  }
  return text;
}

std::string chrome_trace(const RankTimeline& timeline, const RankProgram& program) {
  std::string lines;
  std::map<std::string, int> tracks;
  for (const TimelineSpan& span : timeline.spans) {
    const bool is_operation = span.track == TimelineSpan::Track::kOperation;
    const std::string track = is_operation ? fmt::format("group {}", span.group) : "rank";
    const auto [found, is_new] = tracks.try_emplace(track, static_cast<int>(tracks.size()));
    if (is_new)
      lines += fmt::format(
          R"({{"name": "thread_name", "ph": "M", "pid": {}, "tid": {}, "args": {{"name": "{}"}}}},)"
          "\n",
          timeline.rank, found->second, track);
    const std::string name = escaped(program.names[static_cast<size_t>(span.name)]);
    lines +=
        fmt::format(R"({{"name": "{}{}", "ph": "X", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}}},)"
                    "\n",
                    span.track == TimelineSpan::Track::kWait ? "wait: " : "", name, timeline.rank,
                    found->second, span.begin_s * 1e6, (span.end_s - span.begin_s) * 1e6);
  }
  return lines;
}

}  // namespace ingot
