#include "ingot/formats/metrics_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const MetricsValue& value) {
  if (const double* number = std::get_if<double>(&value); number && !std::isfinite(*number)) return nullptr;
  return std::visit([](const auto& v) { return ordered_json(v); }, value);
}

// Returns the line's JSON object, or nullopt if it is not one. The parser does not recurse, so deep
// nesting in a hostile line is harmless.
std::optional<ordered_json> parse_line(std::string_view line) {
  ordered_json object = ordered_json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  return object;
}

// Calls visit(line without its newline) for every line that ends with a newline.
template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (true) {
    const size_t end = text.find('\n');
    if (end == text.npos) return;
    visit(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

std::optional<MetricsValue> to_value(const ordered_json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return json.get<double>();
  if (json.is_number()) return json.get<int64_t>();
  if (json.is_string()) return json.get<std::string>();
  return std::nullopt;
}

}  // namespace

MetricsLog::MetricsLog(const fs::path& path) : path_(path) { open(); }

MetricsLog::~MetricsLog() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsLog::open() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd_ < 0)
    fail(ErrorKind::kDisk, "{}: cannot be written: {}; choose a folder you may write to", path_.string(),
         std::strerror(errno));
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode))
    fail(ErrorKind::kDisk, "{}: is not a regular file; move it away", path_.string());
  off_t end = info.st_size;  // the position after the last newline
  char last = 0;
  while (end > 0 && ::pread(fd_, &last, 1, end - 1) == 1 && last != '\n') --end;
  if (end < info.st_size && ::ftruncate(fd_, end) != 0)
    fail(ErrorKind::kDisk, "{}: its torn last line cannot be cut off: {}", path_.string(),
         std::strerror(errno));
  is_torn_ = false;
}

void MetricsLog::write(std::span<const MetricsField> fields) {
  ordered_json object = ordered_json::object();
  for (const auto& [key, value] : fields) object[key] = to_json(value);
  const std::string line = object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';

  if (is_torn_) open();  // cuts the torn line off, or throws
  struct stat info {};
  const bool has_size = ::fstat(fd_, &info) == 0;
  ssize_t n = 0;
  do n = ::write(fd_, line.data(), line.size());
  while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(line.size())) return;
  const std::string reason = n < 0 ? std::strerror(errno) : "no space left";
  is_torn_ = n > 0 && !(has_size && ::ftruncate(fd_, info.st_size) == 0);
  if (is_torn_)
    fail(ErrorKind::kDisk, "{}: writing failed: {}; a torn line is left, which the next write cuts off",
         path_.string(), reason);
  fail(ErrorKind::kDisk, "{}: writing {} bytes failed: {}; free some space and try again", path_.string(),
       line.size(), reason);
}

void MetricsLog::truncate_after(int64_t step) {
  std::string kept;
  bool is_shorter = false;
  {
    const MappedFile file(path_);
    for_each_line(file.text(), [&](std::string_view line) {
      const std::optional<ordered_json> object = parse_line(line);
      const bool is_later = object && object->contains("step") && (*object)["step"].is_number() &&
                            (*object)["step"].get<double>() > static_cast<double>(step);
      if (!object || is_later)
        is_shorter = true;
      else
        kept.append(line).push_back('\n');
    });
  }
  if (!is_shorter) return;
  write_file(path_, kept);
  open();
}

void MetricsLog::sync() {
  if (::fsync(fd_) != 0)
    fail(ErrorKind::kDisk, "{}: flushing to disk failed: {}; free some space and try again", path_.string(),
         std::strerror(errno));
}

std::optional<double> MetricsRow::number(std::string_view key) const {
  const auto it = std::ranges::find(fields, key, &MetricsField::first);
  if (it == fields.end()) return std::nullopt;
  if (const int64_t* whole = std::get_if<int64_t>(&it->second)) return static_cast<double>(*whole);
  if (const double* number = std::get_if<double>(&it->second)) return *number;
  return std::nullopt;
}

std::vector<MetricsRow> read_metrics(const fs::path& path) {
  return read_metrics_tail(path, std::numeric_limits<size_t>::max());
}

std::vector<MetricsRow> read_metrics_tail(const fs::path& path, size_t tail_bytes) {
  std::vector<MetricsRow> rows;
  if (!path_exists(path)) return rows;
  const MappedFile file(path);
  std::string_view text = file.text();
  if (text.size() > tail_bytes) {
    text.remove_prefix(text.size() - tail_bytes - 1);
    text = text.substr(std::min(text.find('\n'), text.size() - 1) + 1);  // skips the rest of a cut line
  }
  for_each_line(text, [&](std::string_view line) {
    const std::optional<ordered_json> object = parse_line(line);
    if (!object) return;
    MetricsRow& row = rows.emplace_back();
    for (const auto& [key, json] : object->items())
      if (const std::optional<MetricsValue> value = to_value(json)) row.fields.emplace_back(key, *value);
  });
  return rows;
}

MetricsCurve metrics_curve(std::span<const MetricsRow> rows, std::string_view x_key, std::string_view y_key) {
  MetricsCurve curve;
  for (const MetricsRow& row : rows) {
    const std::optional<double> x = row.number(x_key), y = row.number(y_key);
    if (!x || !y) continue;
    curve.x.push_back(*x);
    curve.y.push_back(*y);
  }
  return curve;
}

}  // namespace ingot
