// Scenario: everything that a seed decides before its run begins: the layout, and which faults happen when.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ingot/config/config.h"

namespace ingot::simulated {

struct Fault {
  enum class Kind {
    kKill,            // SIGKILL of a rank
    kCrash,           // SIGSEGV
    kHostLost,        // all ranks of a host die, and the host is away for some attempts
    kStop,            // a rank is stopped (SIGSTOP) for ever
    kStraggle,        // a rank is stopped for a while
    kFullDisk,        // for a while
    kWriteError,      // EIO of one write or flush
    kPowerCut,        // all machines at once, the supervisor's too
    kInterrupt,       // the user tells the supervisor to end, and starts it again later
    kSupervisorKill,  // SIGKILL of the supervisor: the launcher tells the ranks to end, the user starts it again
    kKillAndDamage,  // SIGKILL; then a file of the newest checkpoint is cut short or has a wrong byte
  };
  Kind kind = Kind::kKill;
  int attempt = 0;        // in which attempt to start the job, counted from 0
  int rank = 0;           // which rank triggers it
  int64_t operation = 0;  // at its which operation: calls of communicators and of the file system
  double seconds = 0;     // its duration
  int attempts = 0;       // number of starts for which a lost host stays away
};
const char* name(Fault::Kind kind);

// The run of a layout without faults.
struct Undisturbed {
  std::vector<double> losses;       // of steps 1, 2, ...
  std::vector<int64_t> operations;  // of each rank
  std::vector<std::vector<int64_t>>
      save_calls;  // the numbers of each rank's operations on files of checkpoints
};

inline constexpr int kRanksPerHost = 2;

struct Scenario {
  uint64_t seed = 0;
  int layout = 0;  // index of the layout
  RunConfig config;
  std::vector<Fault> faults;
  bool has_watchdog = true;    // ranks end the job themselves if an operation is late
  bool sees_processes = true;  // the supervisor can see that a process is stopped or gone
  std::string text() const;    // one line for a person
};

int layouts();
// The layout of a seed: most have 8 ranks, a few 16 or 64.
int layout_of(uint64_t seed);
// The configuration of a layout. text: the file to train on.
RunConfig config_of(int layout, const std::filesystem::path& text);
Scenario scenario_of(uint64_t seed, const std::filesystem::path& text, const Undisturbed& undisturbed);

}  // namespace ingot::simulated
