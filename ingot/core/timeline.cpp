#include "ingot/core/timeline.h"

#include <algorithm>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"

namespace ingot {
namespace {

std::string escaped(std::string_view text) {
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

void ChromeTrace::add(const std::string& track, std::string_view name, double begin_s, double end_s) {
  const auto number = std::ranges::find(tracks_, track) - tracks_.begin();
  if (number == std::ssize(tracks_)) {
    tracks_.push_back(track);
    lines_ +=
        fmt::format(R"({{"name": "thread_name", "ph": "M", "pid": {}, "tid": {}, "args": {{"name": "{}"}}}},)"
                    "\n",
                    process_, number, escaped(track));
  }
  lines_ += fmt::format(R"({{"name": "{}", "ph": "X", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}}},)"
                        "\n",
                        escaped(name), process_, number, begin_s * 1e6, (end_s - begin_s) * 1e6);
}

class Timeline::Clock {
 public:
  explicit Clock(Stream& stream) : stream_(stream) { note(); }

  // Records a point in time and returns its number, counted from 0.
  size_t note() {
    if constexpr (kHasCuda) {
      if (stream_.device == Device::kCuda) {
        events_.push_back(std::make_shared<cuda::Event>());
        events_.back()->record(stream_);
        return events_.size() - 1;
      }
    }
    moments_.push_back(std::chrono::steady_clock::now());
    return moments_.size() - 1;
  }
  void finish() const { synchronize(stream_); }
  bool is_captured() const { return stream_.graph != nullptr; }
  // Time since the first point. REQUIRES: finish() has been called.
  double seconds(size_t point) const {
    if constexpr (kHasCuda) {
      if (stream_.device == Device::kCuda) return events_[point]->seconds_since(*events_.front());
    }
    return std::chrono::duration<double>(moments_[point] - moments_.front()).count();
  }

 private:
  Stream& stream_;
  std::vector<std::chrono::steady_clock::time_point> moments_;
  std::vector<std::shared_ptr<cuda::Event>> events_;  // shared_ptr: builds without CUDA have no ~Event
};

Timeline::Timeline(Stream& stream) : clock_(std::make_unique<Clock>(stream)) {}
Timeline::~Timeline() = default;

void Timeline::begin(std::string_view name) {
  if (clock_->is_captured()) return;
  rows_.push_back({.name = std::string(name), .depth = static_cast<int>(open_.size())});
  open_.push_back(rows_.size() - 1);
  points_.emplace_back(clock_->note(), 0);
}

void Timeline::end() {
  if (clock_->is_captured()) return;
  INGOT_CHECK(!open_.empty(), "Timeline: a span ends that has not begun");
  points_[open_.back()].second = clock_->note();
  open_.pop_back();
}

std::vector<Timeline::Row> Timeline::rows() const {
  INGOT_CHECK(open_.empty(), "Timeline: {} is open", rows_[open_.back()].name);
  clock_->finish();
  std::vector<Row> rows = rows_;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].begin_s = clock_->seconds(points_[i].first);
    rows[i].end_s = clock_->seconds(points_[i].second);
  }
  return rows;
}

std::string Timeline::chrome_trace(const std::string& track) const {
  ChromeTrace trace(0);
  for (const Row& row : rows()) trace.add(track, row.name, row.begin_s, row.end_s);
  const std::string& lines = trace.lines();
  return fmt::format("[{}]\n", std::string_view(lines).substr(0, lines.empty() ? 0 : lines.size() - 2));
}

}  // namespace ingot
