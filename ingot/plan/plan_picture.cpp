// The SVG picture of a plan.
#include <algorithm>
#include <array>
#include <map>

#include "ingot/console/console.h"
#include "ingot/formats/markup.h"
#include "ingot/plan/plan_text.h"

namespace ingot {
namespace {

constexpr double kWidth = 960, kLeft = 90, kRight = 20, kBar = 22, kGap = 8, kTop = 44;
constexpr size_t kMaxRows = 16;        // ranks shown in each half
constexpr double kNarrow = 0.01;       // Neighbours narrower than this part of the width are one bar.
constexpr double kInvisible = 0.0001;  // Nothing narrower than this part of the width is drawn.
constexpr std::array<const char*, 8> kColors{"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                             "#66ccee", "#aa3377", "#bbbbbb", "#e08030"};

class Picture {
 public:
  double y = kTop;

  void title(const std::string& text) {
    body_ += fmt::format("<text x='{}' y='{}' class='t'>{}</text>\n", kLeft, y, escape_markup(text));
    y += 14;
  }
  void label(const std::string& text) {
    body_ += fmt::format("<text x='{}' y='{}' text-anchor='end'>{}</text>\n", kLeft - 6, y + kBar * 0.7,
                         escape_markup(text));
  }
  // from and to are fractions of the width.
  void bar(double from, double to, const std::string& name, const std::string& tip, double height = kBar) {
    if (to - from < kInvisible) return;
    const double width = (kWidth - kLeft - kRight) * (to - from);
    body_ += fmt::format(
        "<rect x='{:.2f}' y='{:.2f}' width='{:.2f}' height='{:.2f}' fill='{}'><title>{}</title></rect>\n",
        kLeft + (kWidth - kLeft - kRight) * from, y, width, height, color(name), escape_markup(tip));
  }
  void next_row() { y += kBar + kGap; }
  void legend() {
    double x = kLeft;
    for (const auto& [name, index] : colors_) {
      const double width = 24 + 7.0 * static_cast<double>(name.size());
      if (x + width > kWidth - kRight) {
        x = kLeft;
        y += 18;
      }
      body_ +=
          fmt::format("<rect x='{}' y='{}' width='12' height='12' fill='{}'/><text x='{}' y='{}'>{}</text>\n",
                      x, y, kColors[index], x + 16, y + 10, escape_markup(name));
      x += width;
    }
    colors_.clear();
    y += 44;
  }
  std::string svg() const {
    return fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1:.0f}' font-family='sans-serif' "
        "font-size='12'>\n<style>.t{{font-size:14px;font-weight:bold}} text{{fill:#444}} "
        "@media (prefers-color-scheme: dark){{text{{fill:#ccc}}}}</style>\n{2}</svg>\n",
        kWidth, y, body_);
  }

 private:
  const char* color(const std::string& name) {
    const auto [at, is_new] = colors_.try_emplace(name, colors_.size() % kColors.size());
    return kColors[at->second];
  }

  std::string body_;
  std::map<std::string, size_t> colors_;
};

std::string kind_of(const TimelineSpan& span, const std::string& name) {
  if (span.track == TimelineSpan::Track::kWait) return "waiting";
  for (const char* part : {"forward", "backward", "optimizer"})
    if (name.starts_with(part)) return part;
  return "other";
}

void draw_memory(const Plan& plan, const PlanTarget& target, Picture& picture) {
  double largest = target.is_machine ? 0 : static_cast<double>(target.memory_bytes);
  for (const RankMemory& rank : plan.memory)
    largest = std::max(largest, static_cast<double>(rank.peak_bytes));
  picture.title(fmt::format("memory by arena; the width is {}", format_bytes(largest)));
  const bool is_device = plan.config.train.device == Device::kCuda;
  for (size_t r = 0; r < std::min(kMaxRows, plan.memory.size()); ++r) {
    const RankMemory& rank = plan.memory[r];
    picture.label(rank.ranks.size() > 1 ? fmt::format("{} ranks", rank.ranks.size())
                                        : fmt::format("rank {}", rank.ranks[0]));
    double from = 0;
    for (const MemoryItem& item : rank.items) {
      if (item.bytes == 0 || (is_device && item.memory != Memory::kDevice)) continue;
      const double to = from + static_cast<double>(item.bytes) / largest;
      picture.bar(from, std::min(1.0, to), item.name,
                  fmt::format("{} {}", item.name, format_bytes(static_cast<double>(item.bytes))));
      from = to;
    }
    picture.next_row();
  }
  picture.legend();
}

struct Bar {
  double from = 0, to = 0;  // fractions of the step
  std::string kind, tip;
  int spans = 1;

  // Takes in `next`, if both are passes that touch and are too narrow to be seen apart.
  bool take(const Bar& next) {
    const double width = spans == 1 ? to - from : 0;
    if (!is_pass() || !next.is_pass()) return false;
    if (next.from - to > kInvisible || width > kNarrow || next.to - next.from > kNarrow) return false;
    if (kind != next.kind) kind = "forward and backward";
    to = next.to;
    ++spans;
    return true;
  }
  bool is_pass() const { return kind.starts_with("forward") || kind == "backward"; }
};

// The bars of what a rank computes or waits for. A step of many micro-batches has one bar for their passes.
std::vector<Bar> compute_bars(const RankTimeline& timeline, const RankProgram& program, double step_s) {
  std::vector<Bar> bars;
  for (const TimelineSpan& span : timeline.spans) {
    if (span.track == TimelineSpan::Track::kOperation) continue;
    const std::string& name = program.names[static_cast<size_t>(span.name)];
    Bar bar{span.begin_s / step_s, span.end_s / step_s, kind_of(span, name), name};
    if (bar.to - bar.from < kInvisible) continue;
    if (bars.empty() || !bars.back().take(bar)) bars.push_back(std::move(bar));
  }
  return bars;
}

std::string times(double from, double to, double step_s) {
  return fmt::format("{:.3f} to {:.3f} ms", 1e3 * from * step_s, 1e3 * to * step_s);
}

void draw_timelines(const Plan& plan, Picture& picture) {
  picture.title(fmt::format("a step of {}, by rank; operations between ranks below each rank",
                            plan.schedule.step_s >= 1
                                ? fmt::format("{:.2f} s", plan.schedule.step_s)
                                : fmt::format("{:.2f} ms", 1e3 * plan.schedule.step_s)));
  size_t shown = 0;
  for (const RankTimeline& timeline : plan.schedule.timelines) {
    if (shown++ == kMaxRows) break;
    const RankProgram& program = *plan.programs.programs[static_cast<size_t>(timeline.rank)];
    picture.label(fmt::format("rank {}", timeline.rank));
    const double step_s = plan.schedule.step_s;
    for (const Bar& bar : compute_bars(timeline, program, step_s)) {
      const std::string what = bar.spans == 1 ? bar.tip : fmt::format("{} passes of units", bar.spans);
      picture.bar(bar.from, bar.to, bar.kind, what + ": " + times(bar.from, bar.to, step_s), kBar * 0.7);
    }
    picture.y += kBar * 0.75;
    for (const TimelineSpan& span : timeline.spans) {
      if (span.track != TimelineSpan::Track::kOperation) continue;
      const double from = span.begin_s / step_s, to = span.end_s / step_s;
      picture.bar(from, to, "operation",
                  program.names[static_cast<size_t>(span.name)] + ": " + times(from, to, step_s),
                  kBar * 0.25);
    }
    picture.y -= kBar * 0.75;
    picture.next_row();
  }
  picture.legend();
}

}  // namespace

std::string plan_picture(const Plan& plan, const PlanTarget& target) {
  Picture picture;
  draw_memory(plan, target, picture);
  if (!plan.schedule.timelines.empty()) draw_timelines(plan, picture);
  return picture.svg();
}

}  // namespace ingot
