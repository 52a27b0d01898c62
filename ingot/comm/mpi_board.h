// Boards show the watchdog the current operations of a process's groups. Internal to comm.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "ingot/comm/mpi_job.h"

namespace ingot::mpi {

class Board;

// The state that all groups of a process share.
struct JobContext {
  explicit JobContext(const MpiOptions& of_job) : options(of_job), limit(of_job.timeout_s) {}
  MpiOptions options;
  TimeLimit limit;
  int rank = 0, size = 1;  // in the world
  std::mutex boards_mutex;
  std::vector<Board*> boards;  // one per living group
};

// Board shows the current operation of one group. The group writes it; any thread may read it.
class Board {
 public:
  Board(JobContext& context, std::string group);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  void begin(const char* kind, const std::string& name);  // the next collective starts
  void end();
  void note_message(const std::string& text);  // the message that the group waits for; empty if there is none

  // Seconds that the current operation has run; 0 if there is none.
  double age_s() const;
  std::string text() const;  // "dp: in all_reduce 'grads 3' (number 17) for 61.2 s"

 private:
  JobContext& context_;
  std::string group_;
  mutable std::mutex mutex_;
  std::string operation_, message_;
  uint64_t number_ = 0;
  bool is_running_ = false, is_messaging_ = false;
  std::chrono::steady_clock::time_point since_, message_since_;
};

}  // namespace ingot::mpi
