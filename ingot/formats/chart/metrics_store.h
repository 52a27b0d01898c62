// MetricsStore holds what the lines of a metrics.jsonl or params.jsonl say: one bounded series per key, the
// newest lines as they are, and the events.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ingot/formats/chart/bounded_series.h"

namespace ingot {

// The numbers of one line of the file.
struct NumbersLine {
  int64_t number = 0;  // 1 for the first line since the store was cleared
  double step = 0;
  std::vector<std::pair<std::string, double>> values;  // without the step
};

struct RunEvent {
  double step = 0;
  std::string name, reason;
};

// Parses one line: its numbers and the texts under "event", "reason" and "param". Returns false if it is no
// JSON object with a number under "step". Nested values are left out. Of lines of params.jsonl, the key of a
// number is "grad_norm/NAME OF THE PARAMETER".
bool parse_metrics_line(std::string_view line, NumbersLine& numbers, RunEvent& event);

class MetricsStore {
 public:
  static constexpr size_t kMaxKeys = 4096;      // later keys are left out
  static constexpr size_t kMaxEvents = 1000;    // older events are dropped
  static constexpr size_t kNewestLines = 2048;  // older lines are in the series only

  explicit MetricsStore(size_t most_buckets = 2048) : most_buckets_(most_buckets) {}

  void clear();
  // Adds a line; ignores what is no line of metrics. The series "train_time_s" is the sum of step_ms so far.
  void add(std::string_view line);

  int64_t generation() const { return generation_; }  // changes with every clear()
  int64_t lines() const { return lines_; }
  double last_step() const { return last_step_; }
  const std::map<std::string, BoundedSeries, std::less<>>& series() const { return series_; }
  const BoundedSeries* find(std::string_view key) const;  // null if there is no such key
  const std::deque<NumbersLine>& newest() const { return newest_; }
  const std::deque<RunEvent>& events() const { return events_; }
  int64_t event_count() const { return event_count_; }
  const std::map<std::string, int64_t>& events_by_name() const {
    return events_by_name_;
  }  // kMaxKeys at most

 private:
  size_t most_buckets_;
  int64_t generation_ = 1, lines_ = 0, event_count_ = 0;
  double last_step_ = 0, train_time_s_ = 0;
  std::map<std::string, BoundedSeries, std::less<>> series_;
  std::deque<NumbersLine> newest_;
  std::deque<RunEvent> events_;
  std::map<std::string, int64_t> events_by_name_;
};

}  // namespace ingot
