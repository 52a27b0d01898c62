// Tests of the programs that this one starts and runs concurrently with itself.
#include "ingot/core/process/child_program.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/process/thread_limit.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

class ChildProgramTest : public FolderTest {
 protected:
  static int wait(ChildProgram& child) {
    while (true) {
      if (const auto code = child.poll()) return *code;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  // Waits until the child has written to its errors.
  void wait_for_output() const {
    while (!fs::exists(errors_) || fs::file_size(errors_) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const fs::path errors_ = folder_ / "errors";
};

TEST_F(ChildProgramTest, ExitCodeAndErrorsAreKept) {
  write_file(errors_, "an earlier child's words, longer than the new ones\n");
  ChildProgram child({"/bin/sh", "-c", "echo dropped; echo kept >&2; exit 42"}, errors_);
  EXPECT_EQ(wait(child), 42);
  EXPECT_EQ(child.poll(), 42) << "the code stays";
  EXPECT_EQ(read_file(errors_), "kept\n");
}

TEST_F(ChildProgramTest, ArgumentsAreNotReadByAShell) {
  ChildProgram child({"/bin/sh", "-c", "printf '%s|' \"$@\" >&2", "sh", "a b", "$HOME", "'", ""}, errors_);
  EXPECT_EQ(wait(child), 0);
  EXPECT_EQ(read_file(errors_), "a b|$HOME|'||");
}

TEST_F(ChildProgramTest, APlaceAddsToTheEnvironmentAndNarrowsTheCpus) {
  const std::vector<int> all = allowed_cpus();
  ASSERT_FALSE(all.empty());
  setenv("INGOT_TEST_REPLACED", "old", 1);
  setenv("INGOT_TEST_REPLACED_NOT", "kept", 1);
  const ChildPlace place{.environment = {"INGOT_TEST_REPLACED=new", "INGOT_TEST_ADDED=a=b"},
                         .cpus = {all.back()}};
  ChildProgram child({"/bin/sh", "-c",
                      "echo $INGOT_TEST_REPLACED $INGOT_TEST_REPLACED_NOT $INGOT_TEST_ADDED >&2; "
                      "sed -n 's/Cpus_allowed_list:.//p' /proc/self/status >&2"},
                     errors_, place);
  EXPECT_EQ(wait(child), 0);
  EXPECT_EQ(read_file(errors_), fmt::format("new kept a=b\n{}\n", all.back()));
  EXPECT_EQ(allowed_cpus(), all);
  unsetenv("INGOT_TEST_REPLACED");
  unsetenv("INGOT_TEST_REPLACED_NOT");
}

TEST_F(ChildProgramTest, ASignalEndsItWith128AndItsNumber) {
  ChildProgram child({"/bin/sh", "-c", "echo ready >&2; exec sleep 60"}, errors_);
  wait_for_output();
  EXPECT_FALSE(child.poll());
  child.signal(SIGTERM);
  EXPECT_EQ(wait(child), 128 + SIGTERM);
  child.signal(SIGTERM);  // does nothing: another process may have the number by now
}

TEST_F(ChildProgramTest, SignalsThatThisThreadBlocksReachTheChild) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  ChildProgram child({"/bin/sh", "-c", "echo ready >&2; exec sleep 60"}, errors_);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  wait_for_output();
  child.signal(SIGTERM);
  EXPECT_EQ(wait(child), 128 + SIGTERM);
}

TEST_F(ChildProgramTest, ItHasAProcessGroupOfItsOwn) {
  ChildProgram child({"/bin/sh", "-c", "echo ready >&2; exec sleep 60"}, errors_);
  wait_for_output();
  EXPECT_EQ(getpgid(child.pid()), child.pid());
}

TEST_F(ChildProgramTest, TheDestructorKills) {
  pid_t pid = 0;
  {
    ChildProgram child({"/bin/sh", "-c", "trap '' TERM; echo ready >&2; sleep 60"}, errors_);
    wait_for_output();
    pid = child.pid();
  }
  EXPECT_EQ(kill(pid, 0), -1) << "the process is gone and has been waited for";
}

TEST_F(ChildProgramTest, ItEndsWithTheProcessThatStartedIt) {
  const pid_t parent = fork();
  if (parent == 0) {
    const ChildProgram child({"/bin/sh", "-c", "echo $$ >&2; exec sleep 60"}, errors_);
    pause();
    _exit(0);
  }
  wait_for_output();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the number is complete
  const pid_t child = std::stoi(read_file(errors_));
  EXPECT_EQ(kill(child, 0), 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  bool is_gone = false;
  for (int i = 0; i < 1000 && !is_gone; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // In a container without an init process an ended orphan stays as a zombie.
    const std::string stat = "/proc/" + std::to_string(child) + "/stat";
    is_gone = !fs::exists(stat) || read_file(stat).find(") Z") != std::string::npos;
  }
  EXPECT_TRUE(is_gone);
}

TEST_F(ChildProgramTest, ACopyOfThisProcessDoesTheWork) {
  ChildProgram copy([&] { write_file(errors_, std::to_string(getpgrp())); });
  EXPECT_EQ(wait(copy), 0);
  EXPECT_EQ(read_file(errors_), std::to_string(copy.pid()));
  ChildProgram failing([] { throw std::runtime_error("no"); });
  EXPECT_EQ(wait(failing), 1);
}

TEST_F(ChildProgramTest, WhatCannotBeStartedIsSaid) {
  ChildProgram child({"/nowhere/program"}, errors_);
  EXPECT_EQ(wait(child), 127);
  EXPECT_THAT(error_of([&] { ChildProgram other({"/bin/true"}, "/nowhere/errors.txt"); }, ErrorKind::kDisk),
              testing::HasSubstr("/nowhere/errors.txt"));
}

TEST(ThisProgram, IsThePathOfTheTest) {
  EXPECT_TRUE(fs::is_regular_file(this_program()));
  EXPECT_THAT(this_program().filename().string(), testing::HasSubstr("ingot_core_tests"));
}

}  // namespace
}  // namespace ingot
