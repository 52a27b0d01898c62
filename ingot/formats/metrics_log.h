// metrics.jsonl: a log with one JSON object per line, appended during the run, and its reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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

// Appends to the file. Used by one thread. Each line is one write() call, so that a reader (or `tail -f`)
// sees whole lines and a killed process loses none.
class MetricsLog {
 public:
  // Opens the file for appending, or creates it. Removes a torn last line (without a newline, because the
  // writer was killed). kDisk error if that fails.
  explicit MetricsLog(const std::filesystem::path& path);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Appends {"key":value,...} in the given order. NaN and infinities are written as null, and bytes of a
  // string that are not UTF-8 as U+FFFD. If writing fails, a partial line is removed and a kDisk error
  // names the path.
  void write(std::span<const MetricsField> fields);
  void write(std::initializer_list<MetricsField> fields) { write(std::span(fields.begin(), fields.size())); }

  // Removes the lines whose "step" is above `step`, because a resumed run writes them again, and among them
  // every line that is not a JSON object. Reads the file from its end, until a thousand lines in a row stay:
  // the time does not grow with the file.
  void truncate_after(int64_t step);

  // Flushes to the disk (fsync).
  void sync();

 private:
  void open();

  std::filesystem::path path_;
  int fd_ = -1;
  bool is_torn_ = false;  // the file ends with part of a line
};

// One line that was read. Null and nested values are left out.
struct MetricsRow {
  std::vector<MetricsField> fields;

  // Returns the number (integer or not) under the key, or nullopt if the key is absent or not a number.
  std::optional<double> number(std::string_view key) const;
};

// Returns every line that is a JSON object, in file order, and skips torn, empty and other lines. Empty
// if the file does not exist. kData error if the path is not a readable file.
std::vector<MetricsRow> read_metrics(const std::filesystem::path& path);
// The same for the lines that lie completely in the last `tail_bytes` of the file, so that a long file
// costs no more.
std::vector<MetricsRow> read_metrics_tail(const std::filesystem::path& path, size_t tail_bytes);

// Calls visit(line without its newline) for every complete line of the file, in order; for none if the file
// does not exist.
void visit_metrics_lines(const std::filesystem::path& path,
                         const std::function<void(std::string_view line)>& visit);
// Returns the number under the key of a line that MetricsLog wrote, as MetricsRow::number does, without
// parsing the rest.
std::optional<double> number_in_line(std::string_view line, std::string_view key);

// The points (x, y) of the lines that have both keys. Nothing else of the file is kept in memory.
struct MetricsCurve {
  std::vector<double> x, y;
};
MetricsCurve read_metrics_curve(const std::filesystem::path& path, std::string_view x_key,
                                std::string_view y_key);

}  // namespace ingot
