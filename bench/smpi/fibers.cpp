#include "bench/smpi/fibers.h"

#include <cxxabi.h>
#include <smpi/mpi.h>
#include <sys/mman.h>
#include <simgrid/s4u/Actor.hpp>
#include <simgrid/s4u/Engine.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unordered_map>

namespace ingot::smpi {
namespace {

constexpr size_t kStack = 8 << 20;  // bytes; a page takes memory when it is first used
constexpr double kPoll_s = 1e-6;

bool is_initialized() {
  int flag = 0;
  PMPI_Initialized(&flag);
  return flag != 0;
}

}  // namespace

Stack::Stack()
    : data(
          mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (data == MAP_FAILED) {
    std::fputs("smpi: no memory for the stack of a thread\n", stderr);
    std::abort();
  }
}

Stack::~Stack() { munmap(data, kStack); }

double now_s() {
  if (is_initialized()) {
    timespec unused;
    smpi_clock_gettime(CLOCK_MONOTONIC, &unused);  // charges the computation so far
  }
  return simgrid::s4u::Engine::get_clock();
}

void pass(double seconds) {
  if (!is_initialized()) return simgrid::s4u::this_actor::sleep_for(seconds);
  const double whole = static_cast<double>(static_cast<time_t>(seconds));
  const timespec time{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
  smpi_nanosleep(&time, nullptr);
}

Fibers* Fibers::here() {
  static std::unordered_map<aid_t, std::unique_ptr<Fibers>> all;  // the simulation has one thread
  const simgrid::s4u::Actor* self = simgrid::s4u::Actor::self();
  if (!self || simgrid::s4u::Actor::is_maestro()) return nullptr;
  std::unique_ptr<Fibers>& own = all[self->get_pid()];
  if (!own) {
    const char* rank = self->get_property("rank");
    own = std::make_unique<Fibers>(rank ? rank : "0");
  }
  return own.get();
}

Fiber* Fibers::start(void* (*entry)(void*), void* argument) {
  Fiber& fiber = fibers_.emplace_back();
  fiber.stack = std::make_unique<Stack>();
  fiber.entry = entry;
  fiber.argument = argument;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack->data;
  fiber.context.uc_stack.ss_size = kStack;
  makecontext(&fiber.context, &Fibers::run, 0);
  return &fiber;
}

void Fibers::run() {
  Fibers& own = *here();
  Fiber& fiber = own.current();
  fiber.result = fiber.entry(fiber.argument);
  fiber.is_done = true;
  own.wake(&fiber, true);
  own.wait(nullptr, kForever);  // never returns: join frees the stack
}

void* Fibers::join(Fiber* fiber) {
  while (!fiber->is_done) wait(fiber, kForever);
  void* result = fiber->result;
  fibers_.remove_if([&](const Fiber& f) { return &f == fiber; });
  return result;
}

bool Fibers::wait(const void* key, double until_s) {
  current_->waits_for = key;
  current_->wake_s = until_s;
  switch_away();
  const bool is_woken = key && !current_->waits_for;
  current_->waits_for = nullptr;
  return is_woken;
}

bool Fibers::wake(const void* key, bool wakes_all) {
  bool is_woken = false;
  for (Fiber& fiber : fibers_) {
    if (fiber.waits_for != key) continue;
    fiber.waits_for = nullptr;
    fiber.wake_s = 0;
    is_woken = true;
    if (!wakes_all) break;
  }
  return is_woken;
}

void Fibers::hand_over() { wait(nullptr, 0); }

void Fibers::yield() { wait(nullptr, now_s() + kPoll_s); }

// Returns the next fiber that can run, in turn after the current one; null if none can.
Fiber* Fibers::next_ready(double now) {
  const auto own = std::ranges::find_if(fibers_, [&](const Fiber& f) { return &f == current_; });
  auto place = own;
  do {
    if (++place == fibers_.end()) place = fibers_.begin();
    if (place->wake_s <= now) return &*place;
  } while (place != own);
  return nullptr;
}

void Fibers::switch_away() {
  Fiber* next = nullptr;
  while (!(next = next_ready(now_s()))) {
    const double wake_s = std::ranges::min_element(fibers_, {}, &Fiber::wake_s)->wake_s;
    if (wake_s == kForever) {
      std::fprintf(stderr, "smpi: every thread of rank %s waits for another\n", rank_.c_str());
      std::abort();
    }
    pass(std::max(wake_s - simgrid::s4u::Engine::get_clock(), 1e-9));
  }
  if (next == current_) return;
  Fiber* last = current_;
  auto* exceptions = reinterpret_cast<std::byte*>(abi::__cxa_get_globals());
  std::memcpy(last->exceptions, exceptions, sizeof last->exceptions);
  std::memcpy(exceptions, next->exceptions, sizeof next->exceptions);
  current_ = next;
  swapcontext(&last->context, &next->context);
}

}  // namespace ingot::smpi
