#include "ingot/run/record/buffered_log.h"

#include <utility>

#include "ingot/core/error.h"

namespace ingot {
namespace {

bool is_later(const std::vector<MetricsField>& line, int64_t step) {
  for (const auto& [key, value] : line)
    if (const int64_t* number = std::get_if<int64_t>(&value); number && key == "step") return *number > step;
  return false;
}

}  // namespace

void BufferedLog::write(std::vector<MetricsField> line) {
  waiting_.push_back(std::move(line));
  flush();
  if (waiting_.size() > kMaxWaiting) waiting_.pop_front();
}

void BufferedLog::flush() {
  try {
    for (; !waiting_.empty(); waiting_.pop_front()) log_.write(waiting_.front());
    has_said_it_ = false;
  } catch (const Error& error) {
    cause_ = error.what();
  }
}

void BufferedLog::truncate_after(int64_t step) {
  flush();
  std::erase_if(waiting_, [&](const auto& line) { return is_later(line, step); });
  log_.truncate_after(step);
}

void BufferedLog::sync() {
  flush();
  if (!waiting_.empty()) throw Error(cause_, ErrorKind::kDisk);
  log_.sync();
}

std::optional<std::string> BufferedLog::take_error() {
  if (waiting_.empty() || std::exchange(has_said_it_, true)) return std::nullopt;
  return cause_;
}

}  // namespace ingot
