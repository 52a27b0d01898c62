// Empty in builds without MPI.
#ifdef INGOT_WITH_MPI
#include "ingot/comm/mpi_watchdog.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace ingot::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kQuestion = 1, kAnswer = 2;  // message tags
constexpr auto kPeriod = std::chrono::milliseconds(10);
constexpr double kStuck_s = 0.2;                  // a longer wait is stuck; mpirun's next signal comes later
constexpr auto kSleep = std::chrono::seconds(1);  // a period this long means that the process was stopped
constexpr auto kPatience = std::chrono::seconds(3);  // time limit for the answers

}  // namespace

Watchdog::Watchdog(JobContext& context)
    : context_(context), last_look_(Clock::now()), awake_since_(last_look_) {
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  MPI_Barrier(comm_);  // after this no rank asks another
  is_ending_ = true;
  thread_.join();
  MPI_Comm_free(&comm_);
}

void Watchdog::watch() {
  while (!is_ending_) {
    while (answer()) {
    }
    tell_if_stuck();
    note_sleep();
    const double limit_s = context_.limit.seconds();
    if (is_late(limit_s)) {
      const std::string all = ask_all();
      abort_job(
          context_,
          fmt::format("an operation is late (more than {:.3g} s{}); every rank's last ones:\n{}", limit_s,
                      context_.limit.is_fixed() ? "" : ", by parallel.timeout = \"auto\"", all),
          1);
    }
    std::this_thread::sleep_for(kPeriod);
  }
}

bool Watchdog::answer() {
  int has_question = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, kQuestion, comm_, &has_question, &status);
  if (!has_question) return false;
  MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kQuestion, comm_, MPI_STATUS_IGNORE);
  const std::string text = own_text();
  MPI_Send(text.data(), static_cast<int>(text.size()), MPI_BYTE, status.MPI_SOURCE, kAnswer, comm_);
  return true;
}

// If a process was stopped (Ctrl-Z, a frozen container), its operations look old when it continues, and
// the other ranks may have been stopped too. So the time before does not count.
void Watchdog::note_sleep() {
  const Clock::time_point now = Clock::now();
  if (now - last_look_ > kSleep) awake_since_ = now;
  last_look_ = now;
}

bool Watchdog::is_late(double limit_s) const {
  if (std::chrono::duration<double>(Clock::now() - awake_since_).count() <= limit_s) return false;
  const std::lock_guard lock(context_.boards_mutex);
  return std::ranges::any_of(context_.boards, [&](const Board* b) { return b->age_s() > limit_s; });
}

// Prints only once, in one write, because mpirun may kill the process soon.
void Watchdog::tell_if_stuck() {
  const std::atomic<bool>* told = context_.options.is_stop_requested;
  if (has_told_ || !told || !*told || !is_late(kStuck_s)) return;
  has_told_ = true;
  fmt::print(stderr, "ingot: rank {} of {}: told to end, and waits for other ranks: {}\n", context_.rank,
             context_.size, own_text());
  std::fflush(stderr);
}

std::string Watchdog::own_text() const {
  const std::lock_guard lock(context_.boards_mutex);
  std::string text;
  for (const Board* board : context_.boards) text += (text.empty() ? "" : "; ") + board->text();
  return text.substr(0, 1000);  // short enough for MPI to send eagerly, before the receiver calls MPI_Recv
}

std::string Watchdog::ask_all() {
  std::vector<std::string> texts(static_cast<size_t>(context_.size), "does not answer");
  texts[static_cast<size_t>(context_.rank)] = own_text();
  for (int r = 0; r < context_.size; ++r)
    if (r != context_.rank) MPI_Send(nullptr, 0, MPI_BYTE, r, kQuestion, comm_);
  int missing = context_.size - 1;
  for (const auto end = Clock::now() + kPatience; missing > 0 && Clock::now() < end;) {
    answer();  // other ranks may ask at the same time
    int has_answer = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kAnswer, comm_, &has_answer, &status);
    if (!has_answer) {
      std::this_thread::sleep_for(kPeriod);
      continue;
    }
    int length = 0;
    MPI_Get_count(&status, MPI_BYTE, &length);
    std::string& text = texts[static_cast<size_t>(status.MPI_SOURCE)];
    text.resize(static_cast<size_t>(length));
    MPI_Recv(text.data(), length, MPI_BYTE, status.MPI_SOURCE, kAnswer, comm_, MPI_STATUS_IGNORE);
    --missing;
  }
  std::string all;
  for (size_t r = 0; r < texts.size(); ++r) all += fmt::format("  rank {}: {}\n", r, texts[r]);
  return all;
}

}  // namespace ingot::mpi
#endif
