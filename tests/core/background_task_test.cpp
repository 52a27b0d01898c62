#include "ingot/core/process/background_task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "ingot/core/parallel.h"

namespace ingot {
namespace {

TEST(BackgroundTask, WorkRunsBesideTheCaller) {
  BackgroundTask task;
  EXPECT_TRUE(task.is_done());
  std::atomic<bool> may_end = false;
  std::thread::id thread;
  task.start([&] {
    BackgroundTask::become_patient();
    thread = std::this_thread::get_id();
    may_end.wait(false);
  });
  EXPECT_FALSE(task.is_done());
  may_end = true;
  may_end.notify_all();
  task.wait();
  EXPECT_TRUE(task.is_done());
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(BackgroundTask, ItsParallelForUsesNoOtherThreads) {
  const int threads = num_threads();
  set_num_threads(4);
  BackgroundTask task;
  int there = 0;
  task.start([&] { there = num_threads(); });
  task.wait();
  EXPECT_EQ(there, 1);
  EXPECT_EQ(num_threads(), 4);
  set_num_threads(threads);
}

TEST(BackgroundTask, RunUsesTheCallersThread) {
  BackgroundTask task;
  std::thread::id thread;
  task.run([&] { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());
  task.wait();
}

TEST(BackgroundTask, WaitThrowsTheErrorOnce) {
  BackgroundTask task;
  const auto work = [] { throw std::runtime_error("no space"); };
  task.start(work);
  EXPECT_THROW(task.wait(), std::runtime_error);
  task.wait();
  task.run(work);
  EXPECT_THROW(task.wait(), std::runtime_error);
  int calls = 0;
  task.start([&] { ++calls; });
  task.wait();
  EXPECT_EQ(calls, 1);
}

TEST(BackgroundTask, TheDestructorWaitsAndForgetsTheError) {
  bool has_ended = false;
  {
    BackgroundTask task;
    task.start([&] {
      has_ended = true;
      throw std::runtime_error("lost");
    });
  }
  EXPECT_TRUE(has_ended);
}

}  // namespace
}  // namespace ingot
