#include "ingot/watch/run_view.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"
#include "ingot/launch/incident_report.h"
#include "ingot/sweep/compared_run.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestRecord = uintmax_t{8} << 20;  // bytes of run.json
constexpr size_t kLargestConfig = size_t{1} << 20;        // bytes of config.toml that are read
constexpr size_t kLargestSample = size_t{1} << 18;
constexpr size_t kMaxSamples = 2000;   // the newest ones
constexpr size_t kParamBuckets = 256;  // there are four series per parameter
constexpr size_t kRecentLines = 200;   // for the rate of progress

// Returns true for a regular file of at most `most_bytes` that is no link.
bool is_plain(const fs::path& path, uintmax_t most_bytes) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() != fs::file_type::regular) return false;
  const uintmax_t size = fs::file_size(path, error);
  return !error && size <= most_bytes;
}

bool is_plain_folder(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::directory;
}

std::optional<int64_t> whole_setting(const std::map<std::string, std::string>& settings, const char* key) {
  const auto found = settings.find(key);
  if (found == settings.end()) return std::nullopt;
  int64_t value = 0;
  const char* end = found->second.data() + found->second.size();
  const auto result = std::from_chars(found->second.data(), end, value);
  if (result.ec != std::errc() || value <= 0) return std::nullopt;
  return value;
}

}  // namespace

RunView::RunView(fs::path folder, std::string name)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      metrics_tail_(folder_ / "metrics.jsonl"),
      params_tail_(folder_ / "params.jsonl"),
      params_(kParamBuckets) {}

// Sizes and times of the files that the status depends on.
std::string RunView::stamp() const {
  std::string text;
  for (const char* file : {"run.json", "metrics.jsonl", "incidents.jsonl", "config.toml"}) {
    struct stat info {};
    if (::lstat((folder_ / file).c_str(), &info) == 0)
      text += fmt::format("{}:{}.{}:{}:{} ", info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                          info.st_size, info.st_mode);
    else
      text += "none ";
  }
  return text;
}

void RunView::refresh_status() {
  const std::string now = stamp();
  if (now == stamp_ && has_ended()) return;
  stamp_ = now;
  status_ = {};
  const fs::path record = folder_ / "run.json";
  std::error_code error;
  if (!fs::exists(fs::symlink_status(record, error))) {
    status_.status = "gone";
    return;
  }
  try {
    if (!is_plain(record, kLargestRecord))
      fail(ErrorKind::kData, "{}: is no regular file, or is too large for the record of a run",
           record.string());
    for (const char* file : {"heartbeat.json", "metrics.jsonl"})
      if (fs::is_symlink(folder_ / file, error))
        fail(ErrorKind::kData, "{}/{}: is a link, which is not followed", folder_.string(), file);
    if (const auto status = read_run_status(folder_)) status_ = *status;
    incidents_ = is_plain(folder_ / "incidents.jsonl", kLargestRecord)
                     ? visible_line(incident_summary(read_incidents(folder_)))
                     : "";
  } catch (const std::exception& problem) {
    status_ = {};
    status_.status = "unreadable";
    status_.error = visible_line(problem.what());
  }
  const auto settings = settings_of(config());
  const auto time = settings.find("train.max_time");
  const bool is_timed = whole_setting(settings, "train.max_tokens").has_value() ||
                        (time != settings.end() && !time->second.starts_with("\"0s\""));
  total_steps_ = is_timed ? std::nullopt : whole_setting(settings, "train.steps");
}

bool RunView::has_ended() const { return status_.status != "running" && status_.status != "running or died"; }

void RunView::refresh_metrics(size_t most_bytes) {
  metrics_tail_.poll(
      most_bytes,
      [this] {
        metrics_.clear();
        offsets_ = {};
      },
      [this](std::string_view line, uint64_t offset) {
        metrics_.add(line);
        offsets_.add(metrics_.last_step(), offset);
      });
}

void RunView::refresh_params(size_t most_bytes) {
  params_tail_.poll(
      most_bytes, [this] { params_.clear(); },
      [this](std::string_view line, uint64_t) { params_.add(line); });
}

double RunView::read_fraction() const {
  if (metrics_tail_.size_bytes() == 0) return 1;
  return static_cast<double>(metrics_tail_.position_bytes()) /
         static_cast<double>(metrics_tail_.size_bytes());
}

std::optional<MetricsStore> RunView::read_range(double from, double to, size_t most_buckets,
                                                size_t most_bytes) const {
  const uint64_t begin = offsets_.offset_before(from);
  const uint64_t end = offsets_.offset_after(to).value_or(metrics_tail_.position_bytes());
  if (end > begin && end - begin > most_bytes) return std::nullopt;
  MetricsStore store(most_buckets);
  read_lines(folder_ / "metrics.jsonl", begin, most_bytes, [&](std::string_view line) {
    NumbersLine numbers;
    RunEvent event;
    if (!parse_metrics_line(line, numbers, event) || numbers.step < from) return true;
    if (numbers.step > to) return false;
    store.add(line);
    return true;
  });
  return store;
}

std::optional<double> RunView::seconds_left() const {
  if (!total_steps_ || status_.steps >= *total_steps_) return std::nullopt;
  double sum_ms = 0;
  int64_t steps = 0;
  const auto& newest = metrics_.newest();
  for (auto line = newest.rbegin(); line != newest.rend() && steps < static_cast<int64_t>(kRecentLines);
       ++line)
    for (const auto& [key, value] : line->values)
      if (key == "step_ms") {
        sum_ms += value;
        ++steps;
      }
  if (steps == 0) return std::nullopt;
  return sum_ms / 1e3 / static_cast<double>(steps) * static_cast<double>(*total_steps_ - status_.steps);
}

std::string RunView::config() const { return read_regular(folder_ / "config.toml", kLargestConfig); }

std::vector<std::string> RunView::samples() const {
  std::vector<std::string> names;
  const fs::path samples = folder_ / "samples";
  if (!is_plain_folder(samples)) return names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(samples, error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".txt") && visible_line(name) == name)
      names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  if (names.size() > kMaxSamples)
    names.erase(names.begin(), names.end() - static_cast<std::ptrdiff_t>(kMaxSamples));
  return names;
}

std::optional<std::string> RunView::sample(const std::string& file) const {
  const std::vector<std::string> names = samples();
  if (std::ranges::find(names, file) == names.end() || !is_plain(folder_ / "samples" / file, UINTMAX_MAX))
    return std::nullopt;
  return read_regular(folder_ / "samples" / file, kLargestSample);
}

}  // namespace ingot
