// TensorBoard event files: Event messages in protocol buffer wire format
// (tensorflow/core/util/event.proto, framework/summary.proto), framed as TFRecord (length, masked
// CRC-32C, payload, masked CRC-32C).
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

// Appends to one event file. Times are seconds since 1970. Used by one thread.
class TensorboardWriter {
 public:
  // Creates the folder and a new file events.out.tfevents.<time>.<host>.<pid>.<n> in it. resumed_step:
  // the first step that a resumed run will log again; TensorBoard then hides what earlier files hold from
  // that step on. kDisk error if creating fails.
  TensorboardWriter(const std::filesystem::path& folder, double time_s,
                    std::optional<int64_t> resumed_step = {});
  ~TensorboardWriter();  // flushes; ignores errors
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void scalar(std::string_view tag, double value, int64_t step, double time_s);
  // Adds Markdown that the TEXT page shows under the tag. The caller should replace bytes that are not UTF-8.
  void text(std::string_view tag, std::string_view text, int64_t step, double time_s);

  // Adds the run's row of the HPARAMS page: its values, which must be UTF-8, and at the end that the run
  // was completed. TensorBoard uses the first entry of each kind in a folder.
  void hparams_start(std::span<const HyperParameter> values, double time_s);
  void hparams_end(double time_s);

  // Writes pending events to the file. kDisk error that names the path if that fails.
  void flush();

 private:
  void add_event(std::string_view event);
  void add_hparams(std::string_view tag, std::string_view content, double time_s);

  std::filesystem::path path_;
  int fd_ = -1;
  std::string pending_;
};

}  // namespace ingot
