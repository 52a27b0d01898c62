// The fixture of tests with hostile files and paths: a folder, the program run in it, and a tiny trained
// model.
#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "ingot/core/file.h"
#include "tests/regress/run_script.h"

namespace ingot {

class AttackTest : public ScriptTest {
 protected:
  // Writes text.txt and returns the arguments of a run of a few steps on it.
  std::string train(const std::string& out, const std::string& more = "") const {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += i % 7 < 3 ? "the cat sat on the mat. " : "a dog ran. ";
    write_file(folder_ / "text.txt", text);
    return "train tiny-llama --data text.txt --out " + out +
           " --set data.tokenizer=byte --set model.layers=1 --set model.width=32 --set model.heads=2"
           " --set model.context=32 --set train.steps=4 --set schedule.warmup_steps=1 --set sample.count=0"
           " --set train.batch_size=2 --set train.grad_accum=1 " +
           more;
  }

  // Makes a run in the folder "run".
  void make_run(const std::string& more = "") const {
    const Outcome made = bash("$ingot " + train("run", more));
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }
  // Returns the folder of one of its checkpoints.
  std::filesystem::path checkpoint(int64_t step) const {
    return folder_ / "run/checkpoints" / fmt::format("step-{:09}", step);
  }
};

inline mode_t attack_file_type(const std::filesystem::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

}  // namespace ingot
