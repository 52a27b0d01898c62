// LocalJob is a job whose launcher (mpirun, srun), or whose only process, is a child of this process. Its
// ranks may run on other machines that share the run's folder.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/core/process/child_program.h"
#include "ingot/launch/job.h"
#include "ingot/run/record/heartbeat.h"

namespace ingot {

class ErrorTee;

// A machine that may run ranks.
struct HostSlots {
  std::string name;
  int slots = 1;
};

// Parses "node1:8,node2:8"; a name without a number has one slot. kUsage error for anything else.
std::vector<HostSlots> parse_hosts(const std::string& text);

struct LocalJobOptions {
  std::filesystem::path run;          // the run's folder
  RunConfig config;                   // of the run
  std::string program;                // the path of ingot
  std::vector<std::string> train;     // the arguments behind "train", without --resume
  std::vector<std::string> launcher;  // "mpirun", ...; empty: one process without a launcher
  std::vector<HostSlots> hosts;       // empty: where the launcher starts ranks by itself
};

class LocalJob : public Job {
 public:
  // signals: number of times that the user asked the program to end. say: prints a line for the user.
  // REQUIRES: the process has no other children.
  LocalJob(LocalJobOptions options, const std::atomic<int>& signals,
           std::function<void(const std::string& line)> say);
  ~LocalJob() override;

  void prepare() override;
  void start() override;
  std::optional<JobEnd> end() override;
  std::vector<RankSign> signs() override;
  void ask_to_end() override;
  void kill() override;
  int ranks() override { return static_cast<int>(layout_.ranks()); }
  bool has_folder() override;
  int64_t saved_step() override;
  double now_s() override;
  void pause(double seconds) override;
  int signals() override { return signals_.load(); }

 private:
  std::vector<std::string> command() const;
  bool is_resume() const;
  bool answers(const HostSlots& host) const;
  void read_signs();
  JobEnd::Status status(int exit_code) const;
  bool is_complete() const;
  Incident cause(int exit_code, const std::string& errors) const;

  LocalJobOptions options_;
  const std::atomic<int>& signals_;
  std::function<void(const std::string&)> say_;
  ParallelConfig layout_;         // of the next attempt, or the one that runs
  std::vector<HostSlots> hosts_;  // those that answer
  std::optional<ChildProgram> child_;
  std::unique_ptr<ErrorTee> errors_;             // null: the child writes to this program's standard error
  std::map<int, HeartbeatSign> before_, signs_;  // of earlier attempts; of this one; by rank
  double next_read_s_ = 0;                       // when the signs of all ranks are read again
};

}  // namespace ingot
