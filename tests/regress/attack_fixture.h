// What tests of hostile files and places share: a folder, the program in it, a tiny trained model.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "ingot/core/file.h"

namespace ingot {

struct AttackOutcome {
  int exit_code = -1;
  std::string output;  // both streams
};

class AttackTest : public testing::Test {
 protected:
  AttackTest()
      : folder_(std::filesystem::temp_directory_path() / ("ingot_attack_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
    make_folders(folder_);
  }
  ~AttackTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // Runs a script in the folder; $ingot is the program.
  AttackOutcome bash(const std::string& script) const {
    write_file(folder_ / "script.sh",
               "export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive\ningot='" INGOT_PROGRAM "'\ncd '" +
                   folder_.string() + "'\n" + script + "\n");
    AttackOutcome outcome;
    std::FILE* pipe = popen(("bash " + path("script.sh") + " 2>&1").c_str(), "r");
    if (!pipe) return outcome;
    std::array<char, 4096> buffer;
    while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
      outcome.output.append(buffer.data(), n);
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
  }

  // The arguments of a run of a few steps on text.txt, which is made.
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

  std::filesystem::path folder_;
};

inline mode_t attack_file_type(const std::filesystem::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

}  // namespace ingot
