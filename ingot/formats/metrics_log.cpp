#include "ingot/formats/metrics_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
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
  constexpr int kInOrder = 1000;
  const auto stays = [step](std::string_view line) {
    const std::optional<ordered_json> object = parse_line(line);
    return object && !(object->contains("step") && (*object)["step"].is_number() &&
                       (*object)["step"].get<double>() > static_cast<double>(step));
  };
  std::optional<size_t> cut;  // offset of the first line to remove
  std::string tail;           // the lines after it that stay
  {
    const MappedFile file(path_);
    const std::string_view text = file.text();
    std::vector<std::string_view>
        kept;  // after the line that was last found to be removed; the last one first
    for (size_t end = text.size(); end > 0 && std::ssize(kept) < kInOrder;) {
      const size_t before = end > 1 ? text.rfind('\n', end - 2) : text.npos;
      const size_t begin = before == text.npos ? 0 : before + 1;
      const std::string_view line = text.substr(begin, end - begin);
      if (stays(line.substr(0, line.size() - 1))) {
        kept.push_back(line);
      } else {
        for (const std::string_view earlier : kept) tail.insert(0, earlier);
        kept.clear();
        cut = begin;
      }
      end = begin;
    }
  }
  if (!cut) return;
  if (::ftruncate(fd_, static_cast<off_t>(*cut)) != 0 ||
      ::write(fd_, tail.data(), tail.size()) != static_cast<ssize_t>(tail.size()))
    fail(ErrorKind::kDisk, "{}: its lines after step {} cannot be removed: {}; free some space and try again",
         path_.string(), step, std::strerror(errno));
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

void visit_metrics_lines(const fs::path& path, const std::function<void(std::string_view line)>& visit) {
  if (!path_exists(path)) return;
  const MappedFile file(path);
  for_each_line(file.text(), visit);
}

std::optional<double> number_in_line(std::string_view line, std::string_view key) {
  // Quotes within a text are escaped, so this is the key and nothing else.
  const std::string name = '"' + std::string(key) + "\":";
  const size_t found = line.find(name);
  if (found == line.npos) return std::nullopt;
  double value = 0;
  const char* begin = line.data() + found + name.size();
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), value);
  return error == std::errc() && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

MetricsCurve read_metrics_curve(const fs::path& path, std::string_view x_key, std::string_view y_key) {
  MetricsCurve curve;
  visit_metrics_lines(path, [&](std::string_view line) {
    const std::optional<double> y = number_in_line(line, y_key);
    const std::optional<double> x = y ? number_in_line(line, x_key) : std::nullopt;
    if (!x) return;
    curve.x.push_back(*x);
    curve.y.push_back(*y);
  });
  return curve;
}

}  // namespace ingot
