// The functions of the C library and of MPI through which a program starts threads, waits, sleeps and reads
// the clock, replaced inside simulated ranks. Threads become fibers (fibers.h), and the clock is the
// simulated one. Outside a rank every function is the C library's. The program links this library before the
// C library, and smpirun preloads it, because SMPI's copies of a program look up symbols in their own
// libraries first.
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <smpi/mpi.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "bench/smpi/fibers.h"

namespace {

using ingot::smpi::Fiber;
using ingot::smpi::Fibers;
using ingot::smpi::kForever;

template <typename F>
F* next_function(F*, const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
// The C library's function of this name.
#define INGOT_REAL(name)                                  \
  ([] {                                                   \
    static auto* const real = next_function(name, #name); \
    return real;                                          \
  }())

double seconds(const timespec& t) {
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Wall time at simulated time 0, so that files get today's date.
double wall_start_s() {
  static const double start = [] {
    timespec now;
    INGOT_REAL(clock_gettime)(CLOCK_REALTIME, &now);
    return static_cast<double>(now.tv_sec);
  }();
  return start;
}

double simulated_s(clockid_t clock, const timespec& t) {
  return seconds(t) - (clock == CLOCK_REALTIME ? wall_start_s() : 0);
}

// SMPI itself measures real time.
bool is_in_simgrid(void* address) {
  Dl_info caller{}, simgrid{};
  static void* const base =
      dladdr(reinterpret_cast<void*>(&smpi_clock_gettime), &simgrid) ? simgrid.dli_fbase : nullptr;
  return dladdr(address, &caller) && caller.dli_fbase == base;
}

int wait_on(Fibers& fibers, pthread_cond_t* condition, pthread_mutex_t* mutex, double until_s) {
  pthread_mutex_unlock(mutex);
  const bool is_woken = fibers.wait(condition, until_s);
  pthread_mutex_lock(mutex);
  return is_woken ? 0 : ETIMEDOUT;
}

}  // namespace

extern "C" {

// ---- threads ----

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*entry)(void*),
                   void* argument) {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_create)(thread, attributes, entry, argument);
  __libc_single_threaded = 0;  // the C++ library leaves out wake-ups in a process of one thread
  *thread = reinterpret_cast<pthread_t>(fibers->start(entry, argument));
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_join)(thread, result);
  void* const value = fibers->join(reinterpret_cast<Fiber*>(thread));
  if (result) *result = value;
  return 0;
}

pthread_t pthread_self() noexcept {
  Fibers* fibers = Fibers::here();
  if (!fibers || fibers->is_first(fibers->current())) return INGOT_REAL(pthread_self)();
  return reinterpret_cast<pthread_t>(&fibers->current());
}

int sched_yield() noexcept {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(sched_yield)();
  fibers->yield();
  return 0;
}

// ---- mutexes and conditions ----

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  const int code = pthread_mutex_trylock(mutex);
  if (code != EBUSY) return code;
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_mutex_lock)(mutex);
  while (pthread_mutex_trylock(mutex) == EBUSY) fibers->yield();
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_cond_wait)(condition, mutex);
  return wait_on(*fibers, condition, mutex, kForever);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_cond_timedwait)(condition, mutex, until);
  return wait_on(*fibers, condition, mutex, simulated_s(CLOCK_REALTIME, *until));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_cond_clockwait)(condition, mutex, clock, until);
  return wait_on(*fibers, condition, mutex, simulated_s(clock, *until));
}

// A woken fiber runs at once: on a real machine it would run on another core.
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_cond_signal)(condition);
  if (fibers->wake(condition, false)) fibers->hand_over();
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_cond_broadcast)(condition);
  if (fibers->wake(condition, true)) fibers->hand_over();
  return 0;
}

// std::atomic::wait and semaphores call futex through this function.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& value : a) value = va_arg(list, long);
  va_end(list);
  Fibers* fibers = number == SYS_futex ? Fibers::here() : nullptr;
  if (!fibers) return INGOT_REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  const long operation = a[1] & FUTEX_CMD_MASK;
  if (operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET) return 0;
  const volatile int* word = reinterpret_cast<const int*>(a[0]);
  while (*word == static_cast<int>(a[2])) fibers->yield();
  return 0;
}

// ---- signals: they stay with the simulator, and one that a rank sends to its own thread arrives ----

int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return Fibers::here() ? 0 : INGOT_REAL(pthread_sigmask)(how, set, old);
}

int pthread_kill(pthread_t thread, int signal) noexcept {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(pthread_kill)(thread, signal);
  Fiber* fiber = reinterpret_cast<Fiber*>(thread);
  fiber->signal = signal;
  fibers->wake(&fiber->signal, true);
  return 0;
}

int sigwait(const sigset_t* set, int* signal) {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(sigwait)(set, signal);
  Fiber& own = fibers->current();
  while (own.signal == 0) fibers->wait(&own.signal, kForever);
  *signal = own.signal;
  own.signal = 0;
  return 0;
}

// ---- time ----

// A computing thread reads the clock at the borders of its phases. The others get their turn then, as they
// would on another core.
int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const bool is_clock = clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME;
  Fibers* fibers = is_clock && !is_in_simgrid(__builtin_return_address(0)) ? Fibers::here() : nullptr;
  if (!fibers) return INGOT_REAL(clock_gettime)(clock, time);
  fibers->hand_over();
  const double now = ingot::smpi::now_s() + (clock == CLOCK_REALTIME ? wall_start_s() : 0);
  time->tv_sec = static_cast<time_t>(now);
  time->tv_nsec = static_cast<long>((now - static_cast<double>(time->tv_sec)) * 1e9);
  return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* rest) {
  Fibers* fibers = Fibers::here();
  if (!fibers) return INGOT_REAL(clock_nanosleep)(clock, flags, time, rest);
  fibers->wait(nullptr,
               flags & TIMER_ABSTIME ? simulated_s(clock, *time) : ingot::smpi::now_s() + seconds(*time));
  return 0;
}

// Pauses between polls are shorter than this. INGOT_SMPI_LONGEST_POLL_US shortens them further, so that an
// operation is found complete soon after it is.
constexpr double kPause_s = 1e-3;

double longest_poll_s() {
  static const char* text = INGOT_REAL(getenv)("INGOT_SMPI_LONGEST_POLL_US");
  return text ? 1e-6 * std::strtod(text, nullptr) : kPause_s;
}

int nanosleep(const timespec* time, timespec* rest) {
  if (is_in_simgrid(__builtin_return_address(0))) return INGOT_REAL(nanosleep)(time, rest);
  timespec pause = *time;
  if (seconds(pause) < kPause_s) {
    pause.tv_nsec = std::min(pause.tv_nsec, static_cast<long>(1e9 * longest_poll_s()));
    rest = nullptr;
  }
  return clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, rest);
}

// ---- what mpirun would tell a rank ----

char* getenv(const char* name) noexcept {
  Fibers* fibers = std::strcmp(name, "PMI_RANK") == 0 ? Fibers::here() : nullptr;
  return fibers ? const_cast<char*>(fibers->rank().c_str()) : INGOT_REAL(getenv)(name);
}

// Fibers of a rank never call MPI at the same time, so any number of them may call it.
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  if (provided) *provided = required;
  return code;
}

}  // extern "C"
