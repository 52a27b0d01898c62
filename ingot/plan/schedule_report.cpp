#include "ingot/plan/schedule_report.h"

#include <fmt/core.h>

#include <map>

namespace ingot {
namespace {

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

}  // namespace

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
