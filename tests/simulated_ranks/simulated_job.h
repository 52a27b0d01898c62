// SimulatedJob: the job of `ingot launch` with simulated ranks. It does what LocalJob (launch/local_job.h)
// does with real processes: it probes the hosts, chooses the layout, starts ranks that run the real trainer,
// reads their heartbeats and says how they ended, in the words of mpirun and of the ranks' watchdogs.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ingot/launch/job.h"
#include "tests/simulated_ranks/scenario.h"
#include "tests/simulated_ranks/simulated_communicator.h"
#include "tests/simulated_ranks/simulated_files.h"

namespace ingot::simulated {

// The supervisor was killed, or all machines, its own too, have lost power.
struct SupervisorGone {};

inline constexpr double kNever_s = 1e9;  // later than the end of every seed

std::string host_of(int rank);  // "node1"

struct Update {
  int64_t step;  // 1 for the first
  double loss;
};

// One attempt to start the job, and what happened in it.
struct Attempt {
  ParallelConfig layout;
  int64_t first_step = 0;                    // that of the newest good checkpoint when it began
  std::vector<std::vector<Update>> updates;  // by rank
  std::vector<int64_t> operations;           // by rank
  std::vector<std::vector<int64_t>> save_calls;
  std::vector<Fault> fired;
  bool has_failed = false;
  bool had_disk_trouble = false;
  std::string errors;  // what the launcher printed
};

class SimulatedJob : public Job {
 public:
  SimulatedJob(Scheduler& scheduler, const Scenario& scenario, Bug bug, std::filesystem::path run);
  ~SimulatedJob() override;

  void start() override;
  std::optional<JobEnd> end() override;
  std::vector<RankSign> signs() override;
  void ask_to_end() override;
  void kill() override;
  int ranks() override { return static_cast<int>(layout_.ranks()); }
  int64_t saved_step() override;
  double now_s() override { return scheduler_.now_s(); }
  void pause(double seconds) override;
  int signals() override { return signals_; }

  // A new supervisor takes over, because the last one is gone or the user started it again.
  void supervisor_begins();
  SimulatedFiles& files() { return *files_; }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  // Steps of the checkpoints that a run has reported as saved, without those that a fault damaged.
  const std::set<int64_t>& saved() const { return saved_; }
  bool has_damaged() const { return has_damaged_; }  // a fault damaged a checkpoint

  // ---- for the functions around the trainer's (planted_bugs.cpp) ----
  Bug bug() const { return bug_; }
  void made_update(int64_t step, double loss);
  void reported_saved(int64_t step) { saved_.insert(step); }
  bool is_last(int rank) const { return rank == static_cast<int>(layout_.ranks()) - 1; }

 private:
  struct Death {
    int exit_code;
    double seen_s;  // when the launcher has noticed
  };

  bool is_supervisor_gone() const { return has_lost_power_ || is_supervisor_killed_; }
  void wait_for_ranks();
  void choose_hosts();
  void run_rank(int rank);
  void called(int rank, bool is_save);
  void fire(const Fault& fault);
  void die(int rank, int signal);
  void lose_host(const Fault& fault);
  void note_error(int rank, const std::string& text, int exit_code);
  void watch_operations();
  void check_progress();
  void end_ranks();
  void damage_newest();
  void launcher_sees(int exit_code);
  Attempt& attempt() { return attempts_.back(); }

  Scheduler& scheduler_;
  const Scenario& scenario_;
  Bug bug_;
  Random random_;
  std::filesystem::path run_;
  std::unique_ptr<SimulatedFiles> files_;
  ParallelConfig layout_;
  std::vector<int> away_until_;  // by host: the first attempt for which it is back
  int signals_ = 0;

  // start() resets the fields from tasks_ to stopped_, calls_seen_ and signs_, which describe the current
  // attempt.
  std::vector<Attempt> attempts_;
  std::vector<std::unique_ptr<Cluster>> clusters_;  // by attempt; killed ranks still refer to theirs
  std::vector<Task*> tasks_;
  std::vector<std::unique_ptr<std::atomic<bool>>> told_to_end_;  // by rank
  std::vector<double> told_s_;
  std::vector<bool> is_interrupted_;
  std::optional<Death> death_;
  std::optional<std::pair<int, double>> stopped_;  // rank, and when
  bool has_lost_power_ = false, is_supervisor_killed_ = false, will_damage_ = false, has_damaged_ = false,
       has_too_few_slots_ = false;
  uint64_t calls_seen_ = 0;
  std::vector<RankSign> signs_;
  std::set<int64_t> saved_;
};

// The job of the simulation that runs in this process; null outside of one.
SimulatedJob*& simulated_job();

}  // namespace ingot::simulated
