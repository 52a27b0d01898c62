// TensorBoard event files: TFRecord framing (length, masked CRC-32C, payload, masked CRC-32C) around Event
// messages in protocol buffer wire format (tensorflow/core/util/event.proto, framework/summary.proto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace ingot {

using HyperParameter = std::pair<std::string, std::variant<bool, double, std::string>>;  // name and value

// One event file being appended to. Times are seconds since 1970. One thread.
class TensorboardWriter {
 public:
  // Makes the folder and a new file events.out.tfevents.<time>.<host>.<pid>.<n> in it. A resumed run gives
  // the first step that it will log again: what earlier files hold from that step on is then not shown. kDisk
  // error if that fails.
  TensorboardWriter(const std::filesystem::path& folder, double time_s,
                    std::optional<int64_t> resumed_step = {});
  ~TensorboardWriter();  // flushes, and swallows its error
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void scalar(std::string_view tag, double value, int64_t step, double time_s);
  // Markdown, shown under the tag on the TEXT page. Bytes that are not UTF-8 should be replaced by the
  // caller.
  void text(std::string_view tag, std::string_view text, int64_t step, double time_s);

  // The run's row of the HPARAMS page: its values, which must be UTF-8, and that it was completed.
  // TensorBoard takes the first of each that a folder holds.
  void hparams_start(std::span<const HyperParameter> values, double time_s);
  void hparams_end(double time_s);

  // Hands what was added to the operating system; kDisk error naming the path if that fails.
  void flush();

 private:
  void add_event(std::string_view event);
  void add_hparams(std::string_view tag, std::string_view content, double time_s);

  std::filesystem::path path_;
  int fd_ = -1;
  std::string pending_;
};

}  // namespace ingot
