#include "ingot/formats/chart/metrics_store.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace ingot {
namespace {

using nlohmann::json;

constexpr size_t kLongestText = 2000;  // bytes of a reason that are stored
constexpr size_t kLongestKey = 300;
constexpr size_t kMaxValues = 4096;  // per line

// Extracts the numbers and texts of the outermost object from the parser's events.
class LineTaker : public nlohmann::json_sax<json> {
 public:
  LineTaker(NumbersLine& numbers, RunEvent& event) : numbers_(numbers), event_(event) {}

  bool null() override { return depth_ > 0; }
  bool boolean(bool) override { return depth_ > 0; }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& text) override {
    if (depth_ != 1) return depth_ > 0;
    if (key_ == "event") event_.name = text.substr(0, kLongestText);
    if (key_ == "reason") event_.reason = text.substr(0, kLongestText);
    if (key_ == "param") param_ = text.substr(0, kLongestKey);
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) key_ = std::move(name);
    return true;
  }
  bool start_object(size_t) override { return ++depth_ <= kDeepest; }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override { return depth_ > 0 && ++depth_ <= kDeepest; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

  std::optional<double> step = {};
  const std::string& param() const { return param_; }

 private:
  static constexpr int kDeepest = 16;

  bool number(double value) {
    if (depth_ != 1 || !std::isfinite(value)) return depth_ > 0;
    if (key_ == "step")
      step = value;
    else if (key_.size() <= kLongestKey && numbers_.values.size() < kMaxValues)
      numbers_.values.emplace_back(std::move(key_), value);
    return true;
  }

  NumbersLine& numbers_;
  RunEvent& event_;
  std::string key_, param_;
  int depth_ = 0;
};

}  // namespace

bool parse_metrics_line(std::string_view line, NumbersLine& numbers, RunEvent& event) {
  LineTaker taker(numbers, event);
  if (!json::sax_parse(line.begin(), line.end(), &taker) || !taker.step) return false;
  numbers.step = event.step = *taker.step;
  if (!taker.param().empty())
    for (auto& [key, value] : numbers.values) key += "/" + taker.param();
  return true;
}

void MetricsStore::clear() {
  ++generation_;
  lines_ = event_count_ = 0;
  last_step_ = train_time_s_ = 0;
  series_.clear();
  newest_.clear();
  events_.clear();
  events_by_name_.clear();
}

void MetricsStore::add(std::string_view line) {
  NumbersLine numbers;
  RunEvent event;
  if (!parse_metrics_line(line, numbers, event)) return;
  numbers.number = ++lines_;
  last_step_ = std::max(last_step_, numbers.step);
  const auto step_ms = std::ranges::find(numbers.values, "step_ms", &std::pair<std::string, double>::first);
  if (step_ms != numbers.values.end()) {
    train_time_s_ += step_ms->second / 1e3;
    if (std::isfinite(train_time_s_)) numbers.values.emplace_back("train_time_s", train_time_s_);
  }
  for (const auto& [key, value] : numbers.values) {
    auto found = series_.find(key);
    if (found == series_.end() && series_.size() < kMaxKeys)
      found = series_.emplace(key, BoundedSeries(most_buckets_)).first;
    if (found != series_.end()) found->second.add(numbers.step, value);
  }
  if (!event.name.empty()) {
    ++event_count_;
    if (events_by_name_.size() < kMaxKeys || events_by_name_.contains(event.name))
      ++events_by_name_[event.name];
    events_.push_back(std::move(event));
    if (events_.size() > kMaxEvents) events_.pop_front();
  }
  newest_.push_back(std::move(numbers));
  if (newest_.size() > kNewestLines) newest_.pop_front();
}

const BoundedSeries* MetricsStore::find(std::string_view key) const {
  const auto found = series_.find(key);
  return found == series_.end() ? nullptr : &found->second;
}

}  // namespace ingot
