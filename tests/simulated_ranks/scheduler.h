// Scheduler runs the threads of a simulation one at a time, in virtual time.
//
// Every rank, and the supervisor, is a task: a thread with a clock of its own. Exactly one task holds the
// baton and runs; it gives the baton away where it waits, sleeps, communicates or calls the file system. The
// next task is the one with the earliest clock; a random number of the seed decides between equal clocks.
// What a task computes takes no virtual time, so the order of all events is a function of the seed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::simulated {

// The random numbers of a seed (SplitMix64, Steele et al. 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double between(double low, double high) { return low + (high - low) * uniform(); }
  bool chance(double probability) { return uniform() < probability; }

 private:
  uint64_t state_;
};

struct Task {
  enum class State { kReady, kBlocked, kDone, kDead };
  std::string name;
  int rank = -1;  // -1: the supervisor
  int pid = 0;    // what getpid() returns
  State state = State::kReady;
  double time_s = 0;        // its clock; when it is ready, the time at which it continues
  uint64_t tie = 0;         // decides between equal clocks
  bool is_stopped = false;  // as by SIGSTOP
  bool is_clock_frozen = false;
  std::string waits_for;  // the operation that it waits for
  double waits_since_s = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool has_baton = false;
};

class Scheduler {
 public:
  explicit Scheduler(uint64_t seed) : random_(seed) {}

  // The calling thread becomes a task that holds the baton.
  Task& adopt(std::string name, int pid);
  // Starts a thread that runs `body` from the virtual time start_s on. The thread is never joined.
  Task& spawn(std::string name, int rank, int pid, double start_s, std::function<void()> body);
  // Returns the task of the calling thread; null in a thread that belongs to no task.
  static Task* current();

  // The following are called by the task that holds the baton.
  double now_s() const { return current()->time_s; }
  // Moves the clock of the calling task without giving the baton away.
  void advance(double seconds) { current()->time_s += seconds; }
  // Sleeps. Tasks with earlier clocks run first.
  void pass(double seconds);
  // Waits until another task calls wake().
  void block();
  void wake(Task& task, double at_s);
  // The task never runs again, and no destructor of its thread runs. If it is the calling task, does not
  // return.
  void kill(Task& task);

  // Adds a number to the hash of everything that happened.
  void note(uint64_t number) { trace_ = (trace_ ^ number) * 0x100000001b3; }
  void note(std::string_view text);
  uint64_t trace() const { return trace_; }
  uint64_t switches() const { return switches_; }

 private:
  void hand_over(Task& self);

  Random random_;
  std::vector<std::unique_ptr<Task>> tasks_;  // without those that ended
  uint64_t trace_ = 0xcbf29ce484222325, switches_ = 0;
};

}  // namespace ingot::simulated
