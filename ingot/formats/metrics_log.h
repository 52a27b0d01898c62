// metrics.jsonl: one JSON object per line, appended as the run goes, and its reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ingot {

using MetricsValue = std::variant<int64_t, double, bool, std::string>;
using MetricsField = std::pair<std::string, MetricsValue>;  // key and value

// The file being appended to. One thread. Every line goes to the operating system in one write, so that a
// reader (or `tail -f`) sees whole lines and a killed process loses none.
class MetricsLog {
 public:
  // Opens for appending, creating the file; a torn last line (no newline: the writer was killed) is cut off.
  // kDisk error if that fails.
  explicit MetricsLog(const std::filesystem::path& path);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Appends {"key":value,...} in the given order. NaN and infinities are written as null; bytes of a string
  // that are not UTF-8 as U+FFFD. kDisk error naming the path if it cannot be written; no part of the line
  // stays then.
  void write(std::span<const MetricsField> fields);
  void write(std::initializer_list<MetricsField> fields) { write(std::span(fields.begin(), fields.size())); }

  // Drops every line whose "step" is above `step`, and every line that is no JSON object: what a resumed run
  // repeats. Atomic: the old or the new file is there whatever happens.
  void truncate_after(int64_t step);

  // Flushes to the disk (fsync).
  void sync();

 private:
  void open();

  std::filesystem::path path_;
  int fd_ = -1;
};

// One line as read. Null and nested values are left out.
struct MetricsRow {
  std::vector<MetricsField> fields;

  // The number (whole or not) under the key; nullopt if it is absent or not a number.
  std::optional<double> number(std::string_view key) const;
};

// Every line that is a JSON object, in file order; torn, empty and foreign lines are passed over. An absent
// file has no lines. kData error if the path is no readable file.
std::vector<MetricsRow> read_metrics(const std::filesystem::path& path);
// The same of the lines that lie wholly in the last `tail_bytes` of the file: its end, however long it is.
std::vector<MetricsRow> read_metrics_tail(const std::filesystem::path& path, size_t tail_bytes);

// Points (x, y) of the rows that have both keys: what a curve of the report is drawn from.
struct MetricsCurve {
  std::vector<double> x, y;
};
MetricsCurve metrics_curve(std::span<const MetricsRow> rows, std::string_view x_key, std::string_view y_key);

}  // namespace ingot
