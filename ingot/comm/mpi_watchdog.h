// Inside of mpi_job: a thread on every rank that answers for it, whatever its other threads are stuck in, and
// ends the job when an operation of its own rank is late. Internal to comm.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "ingot/comm/mpi_communicator.h"

namespace ingot::mpi {

class Watchdog {
 public:
  // Called by all ranks, as is the destructor.
  explicit Watchdog(JobContext& context);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();
  bool answer();  // a question, if one came
  void note_sleep();
  bool is_late(double limit_s) const;
  void tell_if_stuck();
  std::string own_text() const;
  // What every rank is at, one line each; ranks that do not answer in time are said not to.
  std::string ask_all();

  JobContext& context_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::atomic<bool> is_ending_ = false;
  bool has_told_ = false;
  std::chrono::steady_clock::time_point last_look_, awake_since_;
  std::thread thread_;
};

}  // namespace ingot::mpi
