// run.json and metrics.jsonl of arbitrary bytes: `ingot status` refuses them with a data error, or can show
// them.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/record/run_status.h"

namespace {

// A folder that lives as long as the process.
const std::filesystem::path& folder() {
  static const std::filesystem::path made = [] {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("ingot_fuzz_run_" + std::to_string(getpid()));
    ingot::make_folders(path);
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return path;
  }();
  return made;
}

void write(const std::filesystem::path& path, const uint8_t* data, size_t size) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) std::abort();
  std::fwrite(data, 1, size, file);
  std::fclose(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  write(folder() / "run.json", data, size);
  write(folder() / "metrics.jsonl", data, size);
  try {
    const auto status = ingot::read_run_status(folder());
    if (!status) return 0;
    for (const char c : ingot::describe(*status, 0) + ingot::remark_on(*status))
      if (c == '\x1b' || c == '\n') std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
  }
  try {
    for (const ingot::MetricsRow& row : ingot::read_metrics(folder() / "metrics.jsonl"))
      static_cast<void>(row.number("loss"));
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
  }
  return 0;
}
