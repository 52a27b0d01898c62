// Fibers: the threads of one simulated rank. SMPI runs every rank as an actor of one process and lets only
// that actor call MPI, so a rank's threads become fibers on stacks of their own inside the actor. One fiber
// runs at a time. It hands over when it waits, sleeps, yields or wakes another; if every fiber waits,
// simulated time passes.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <utility>

namespace ingot::smpi {

inline constexpr double kForever = std::numeric_limits<double>::infinity();

struct Stack {
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  void* data;
};

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<Stack> stack;  // null for the first fiber, which runs on the actor's stack
  void* (*entry)(void*) = nullptr;
  void* argument = nullptr;
  void* result = nullptr;
  const void* waits_for = nullptr;  // what wakes it; null if only time does
  double wake_s = 0;                // simulated time at which it can run
  int signal = 0;                   // delivered by pthread_kill
  bool is_done = false;
  alignas(std::max_align_t) std::byte exceptions[16]{};  // the C++ runtime's state of caught exceptions
};

class Fibers {
 public:
  // The calling rank's fibers; null outside a rank, for example in the simulator itself.
  static Fibers* here();
  explicit Fibers(std::string rank) : rank_(std::move(rank)) {}

  const std::string& rank() const { return rank_; }
  Fiber& current() { return *current_; }
  bool is_first(const Fiber& fiber) const { return &fiber == &fibers_.front(); }
  Fiber* start(void* (*entry)(void*), void* argument);
  void* join(Fiber* fiber);  // waits for its end and frees it

  // Returns true if wake(key) ended the wait, false if the time until_s came first.
  bool wait(const void* key, double until_s);
  // Returns true if a fiber waited for the key.
  bool wake(const void* key, bool wakes_all);
  void hand_over();  // lets the other fibers run that can
  void yield();      // the same, and takes a microsecond, so that time passes while a fiber polls

 private:
  static void run();
  Fiber* next_ready(double now_s);
  void switch_away();

  std::string rank_;
  std::list<Fiber> fibers_;
  Fiber* current_ = &fibers_.emplace_back();
};

// Simulated seconds. Computation since the last call of MPI is charged first.
double now_s();
void pass(double seconds);  // sleeps with the whole rank

}  // namespace ingot::smpi
