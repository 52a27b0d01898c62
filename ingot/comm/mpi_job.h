// A job of several processes under MPI (mpirun, srun): start, the group of all ranks, and one end for all.
// This file and mpi_job.cpp are the only ones that know MPI; compiled where it is found.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "ingot/comm/comm_log.h"
#include "ingot/comm/communicator.h"

namespace ingot {

struct MpiOptions {
  // An operation that takes longer ends the job, with every rank's last ones named; absent: what the session
  // says through Communicator::time_limit decides.
  std::optional<double> timeout_s = {};
  double message_delay_s = 0;  // every operation takes at least so long: for measuring what overlap hides
  bool verifies = false;       // before each collective, ranks compare its kind, name and size
  // Set by a signal that asks this process to end. What it is then stuck in is said on stderr: mpirun sends
  // one before it kills the others of a rank that has died, and they alone know what they waited for.
  const std::atomic<bool>* is_told_to_end = nullptr;
  CommLog* log = nullptr;  // borrowed; null: nothing is kept
};

// True in a process that mpirun or srun started, alone or with others.
bool is_mpi_process();

// The library's name and version, "Open MPI v4.1.4"; may be asked at any time.
std::string mpi_library();

class MpiJob {
 public:
  // Starts MPI; once per process. Error unless the library lets several threads call it.
  explicit MpiJob(const MpiOptions& options = {});
  // Waits for all ranks and ends MPI. While an exception passes by, ends the job on all ranks instead.
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  // How many of the ranks run on this machine, this one included, and which of them it is.
  int ranks_on_node() const;
  int rank_on_node() const;

  // All ranks. It and all groups split from it must be gone, but for the world itself, before the job.
  Communicator& world();

  // Ends the job on all ranks at once: "rank 3 of 8: <cause>" on stderr, and the exit code for mpirun.
  [[noreturn]] void abort(const std::string& cause, int exit_code);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot
