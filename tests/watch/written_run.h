// A run's folder as a test writes it, without training.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {

class WrittenRun {
 public:
  explicit WrittenRun(const std::string& name, const std::string& status = "completed")
      : folder_(root_.path() / name) {
    make_folders(folder_ / "samples");
    write_file(folder_ / "run.json",
               fmt::format(R"({{"status": "{}", "steps": 3, "exit_code": 0}})", status));
    write_file(folder_ / "config.toml", "[train]\nsteps = 4  # optimizer steps\nmax_time = \"0s\"\n");
  }
  std::filesystem::path root() const { return root_.path(); }  // holds the run
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }

  void append(const std::string& text) const {
    std::ofstream(metrics(), std::ios::app | std::ios::binary) << text;
  }
  void append_step(int64_t step, double loss) const {
    append(fmt::format("{{\"step\":{},\"tokens\":{},\"loss\":{},\"step_ms\":500}}\n", step, step * 10, loss));
  }

 private:
  TemporaryFolder root_;
  std::filesystem::path folder_;
};

}  // namespace ingot
