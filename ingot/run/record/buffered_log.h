// BufferedLog is a MetricsLog that tolerates a full disk. Lines that cannot be written are kept in memory, in
// order; once the disk has room again, they are written before the next line.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ingot/formats/metrics_log.h"

namespace ingot {

class BufferedLog {
 public:
  static constexpr size_t kMaxWaiting = 20'000;  // lines; beyond this the oldest are lost

  explicit BufferedLog(const std::filesystem::path& path) : log_(path) {}

  void write(std::vector<MetricsField> line);
  // Same as MetricsLog. sync throws a kDisk error while lines wait.
  void truncate_after(int64_t step);
  void sync();

  // Returns the reason why lines wait, once each time that they begin to wait; otherwise nullopt.
  std::optional<std::string> take_error();
  size_t waiting() const { return waiting_.size(); }

 private:
  void flush();

  MetricsLog log_;
  std::deque<std::vector<MetricsField>> waiting_;
  std::string cause_;         // why lines wait
  bool has_said_it_ = false;  // take_error has returned the cause
};

}  // namespace ingot
