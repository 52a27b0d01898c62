// Watchdog: a thread on each rank that answers questions about this rank even if its other threads are
// stuck, and ends the job when an operation of this rank exceeds the time limit. Internal to comm.
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
  // All ranks call the constructor and the destructor.
  explicit Watchdog(JobContext& context);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();
  bool answer();  // answers one question; returns false if there was none
  void note_sleep();
  bool is_late(double limit_s) const;
  void tell_if_stuck();
  std::string own_text() const;
  // Returns one line per rank: what it is doing, or that it did not answer in time.
  std::string ask_all();

  JobContext& context_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::atomic<bool> is_ending_ = false;
  bool has_told_ = false;
  std::chrono::steady_clock::time_point last_look_, awake_since_;
  std::thread thread_;
};

}  // namespace ingot::mpi
