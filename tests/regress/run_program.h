// A fixture that starts the program in a temporary folder, which is removed after the test.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "ingot/core/file.h"
#include "tests/regress/run_script.h"

namespace ingot {

class ProgramInFolder : public ScriptTest {
 protected:
  ProgramInFolder() {
    std::string text;
    for (int i = 0; text.size() < 20'000; ++i) text += fmt::format("line {} of a text\n", i * i);
    write_file(folder_ / "text.txt", text);
  }

  // Returns the arguments of a run of a very small model that writes to folder `out`.
  std::vector<std::string> small_run(const std::string& out, const std::vector<std::string>& settings) const {
    std::vector<std::string> line = {"train", "tiny-llama", "--data", path("text.txt"), "--out", path(out)};
    std::vector<std::string> all = {"data.tokenizer=byte",     "model.layers=1",   "model.width=32",
                                    "model.heads=2",           "model.context=32", "train.batch_size=2",
                                    "schedule.warmup_steps=0", "eval.every=0",     "sample.count=0"};
    all.insert(all.end(), settings.begin(), settings.end());
    for (const std::string& setting : all) {
      line.emplace_back("--set");
      line.push_back(setting);
    }
    return line;
  }

  // Starts the program with these arguments; its output goes to the file "output". The caller must end
  // it and wait for it.
  pid_t start(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {INGOT_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string output = path("output");
    const pid_t pid = fork();
    if (pid != 0) return pid;
    const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv(argv[0], argv.data());
    _exit(127);
  }

  Outcome wait(pid_t pid) const {
    int status = 0;
    waitpid(pid, &status, 0);
    return {.exit_code = exit_code_of(status), .output = read_file(path("output"))};
  }

  Outcome run(const std::vector<std::string>& arguments) const { return wait(start(arguments)); }

  // Waits until the file exists; returns false if it does not within a minute.
  static bool comes(const std::filesystem::path& file) {
    for (int i = 0; i < 1200; ++i) {
      if (std::filesystem::exists(file)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
};

}  // namespace ingot
