#include "ingot/core/process/stop_signals.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace ingot {
namespace {

constexpr int kWakeUp = SIGUSR1;  // sent by the destructor to wake the waiting thread

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

const char* name_of(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "SIGUSR1";
  }
}

// The same signal that comes again so soon was sent with the first: a terminal sends one to mpirun and to the
// ranks it forwards to, and the kernel tells of a parent's death once for each of its threads.
constexpr std::chrono::milliseconds kEcho{200};

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  // sigwait would return a blocked SIGHUP even if it is ignored, so an ignored one is left out.
  if (!is_ignored(SIGHUP)) sigaddset(&signals, SIGHUP);
  return signals;
}

// Ends the program by the default action of the signal.
void end_by(int signal, const sigset_t& signals) {
  std::signal(signal, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  raise(signal);
  _exit(128 + signal);
}

}  // namespace

void block_stop_signals() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

StopSignals::StopSignals(std::function<void(const char* name)> acknowledge, Second second)
    : acknowledge_(std::move(acknowledge)), signals_(stop_signals()), second_(second) {
  std::signal(SIGPIPE, SIG_IGN);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { wait(); });
}

StopSignals::~StopSignals() {
  is_over_ = true;
  pthread_kill(thread_.native_handle(), kWakeUp);
  thread_.join();
}

void StopSignals::wait() {
  int last = 0;
  std::chrono::steady_clock::time_point last_time;
  while (true) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0) continue;
    if (is_over_) return;
    const auto now = std::chrono::steady_clock::now();
    if (signal == last && now - last_time < kEcho) continue;
    last = signal;
    last_time = now;
    if (signal == SIGUSR1 && is_stop_requested_) continue;
    ++count_;
    const bool is_first = !is_stop_requested_.exchange(true);
    if (is_first)
      acknowledge_(name_of(signal));
    else if (second_ == Second::kEnds)
      end_by(signal, signals_);
  }
}

}  // namespace ingot
