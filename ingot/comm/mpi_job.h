// MpiJob is a job of several processes under MPI (mpirun, srun). It starts MPI, provides the group of all
// ranks, and ends all ranks together. Only the mpi_* files of comm use MPI; builds without MPI omit them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "ingot/comm/comm_log.h"
#include "ingot/comm/communicator.h"

namespace ingot {

struct MpiOptions {
  // An operation that takes longer ends the job and prints every rank's last operations. If nullopt, the
  // session sets the limit through Communicator::time_limit().
  std::optional<double> timeout_s = {};
  double message_delay_s = 0;  // minimum duration of each operation, for measurements of overlap
  bool verifies = false;       // before each collective, the ranks compare its kind, name and size
  // Borrowed; true once a signal has asked this process to end. If the process is then stuck in an operation,
  // it prints that operation. After a rank has died, mpirun signals the remaining ranks before it kills them,
  // and only they know the operation that they waited for.
  const std::atomic<bool>* is_stop_requested = nullptr;
  CommLog* log = nullptr;  // borrowed; null if nothing is recorded
};

// Returns true in a process that mpirun or srun started, even with one rank.
bool is_mpi_process();

// Returns the name and version of the library, "Open MPI v4.1.4". May be called at any time.
std::string mpi_library();

class MpiJob {
 public:
  // Starts MPI; only once per process. kInternal error unless the library supports calls from several
  // threads at once.
  explicit MpiJob(const MpiOptions& options = {});
  // Waits for all ranks and ends MPI. During exception unwinding it aborts the job on all ranks instead.
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  // Return the number of ranks on this machine, including this one, and the index of this rank among them.
  int ranks_on_node() const;
  int rank_on_node() const;
  // Returns the number of cores on this machine that at least one of its ranks may use. All ranks call it.
  int cores_on_node();

  // Returns the group of all ranks. REQUIRES: every group split from it is destroyed before the job.
  Communicator& world();

  // Ends the job on all ranks at once, with "rank 3 of 8: <cause>" on stderr and exit_code as mpirun's
  // exit code.
  [[noreturn]] void abort(const std::string& cause, int exit_code);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot
