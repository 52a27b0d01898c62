#include "tests/simulated_ranks/scheduler.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <thread>
#include <tuple>
#include <utility>

namespace ingot::simulated {
namespace {

thread_local Task* current_task = nullptr;

void wait_for_baton(Task& task) {
  std::unique_lock lock(task.mutex);
  task.changed.wait(lock, [&] { return task.has_baton; });
}

}  // namespace

uint64_t Random::next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

Task* Scheduler::current() { return current_task; }

Task& Scheduler::adopt(std::string name, int pid) {
  Task& task = *tasks_.emplace_back(std::make_unique<Task>());
  task.name = std::move(name);
  task.pid = pid;
  task.has_baton = true;
  current_task = &task;
  return task;
}

Task& Scheduler::spawn(std::string name, int rank, int pid, double start_s, std::function<void()> body) {
  Task& task = *tasks_.emplace_back(std::make_unique<Task>());
  task.name = std::move(name);
  task.rank = rank;
  task.pid = pid;
  task.time_s = start_s;
  task.tie = random_.next();
  std::thread([this, &task, body = std::move(body)] {
    current_task = &task;
    wait_for_baton(task);
    body();
    task.state = Task::State::kDone;
    hand_over(task);
  }).detach();
  return task;
}

void Scheduler::hand_over(Task& self) {
  Task* next = nullptr;
  for (const auto& task : tasks_)
    if (task->state == Task::State::kReady &&
        (!next || std::tie(task->time_s, task->tie) < std::tie(next->time_s, next->tie)))
      next = task.get();
  if (!next) {
    std::fprintf(stderr, "simulated ranks: no task can run\n");
    std::abort();
  }
  note(static_cast<uint64_t>(next->rank + 1));
  note(std::bit_cast<uint64_t>(next->time_s));
  if (next == &self) return;
  ++switches_;
  {
    const std::lock_guard lock(self.mutex);
    self.has_baton = false;
  }
  {
    const std::lock_guard lock(next->mutex);
    next->has_baton = true;
  }
  next->changed.notify_one();
  if (self.state != Task::State::kDone) wait_for_baton(self);
}

void Scheduler::pass(double seconds) {
  Task& self = *current();
  self.time_s += seconds;
  self.tie = random_.next();
  hand_over(self);
}

void Scheduler::block() {
  Task& self = *current();
  self.state = Task::State::kBlocked;
  self.tie = random_.next();
  hand_over(self);
}

void Scheduler::wake(Task& task, double at_s) {
  if (task.state != Task::State::kBlocked) return;
  task.state = Task::State::kReady;
  task.time_s = std::max(task.time_s, at_s);
}

void Scheduler::kill(Task& task) {
  if (task.state != Task::State::kDone) task.state = Task::State::kDead;
  if (&task == current()) hand_over(task);
}

void Scheduler::note(std::string_view text) {
  for (const char c : text) note(static_cast<uint64_t>(static_cast<unsigned char>(c)));
}

}  // namespace ingot::simulated
