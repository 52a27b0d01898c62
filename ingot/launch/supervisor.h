// Supervisor starts a job, watches the signs of life of its ranks, ends it if they stop, and starts it again
// from the newest checkpoint until the run is complete, the user ends it, or another start is of no use.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ingot/launch/incident.h"
#include "ingot/launch/job.h"
#include "ingot/launch/restart_policy.h"

namespace ingot {

class Supervisor {
 public:
  // Borrows job and log. say: prints a line for the user.
  Supervisor(Job& job, IncidentLog& log, std::optional<int> most_restarts,
             std::function<void(const std::string& line)> say)
      : job_(job), log_(log), policy_(most_restarts), say_(std::move(say)) {}

  // Runs the job to its end. Returns the exit code: 0 if the run is complete, kExitInterrupted (75) if the
  // user asked it to end and it has saved, otherwise the code of the failure after which the supervisor gave
  // up.
  int run();

 private:
  // Watch holds what the signs of life of one attempt have shown so far.
  struct Watch {
    double last_look_s = 0, last_change_s = 0;  // last_change_s: when the leading rank's sign last changed
    std::vector<RankSign> signs;                // the newest of each rank
    std::optional<RankSign> lead;               // that of rank 0
    std::optional<RankSign> gone;               // the first rank that vanished while the job still ran
    double gone_s = 0;
    bool has_step = false;  // the attempt finished a step
  };

  int interrupted_at_start();
  JobEnd watch(Watch& watch);
  void look(Watch& watch);
  static void see_lead(Watch& watch, const RankSign& sign);
  std::optional<Incident> fault(const Watch& watch);
  void note_recovery(const Watch& watch);
  Incident incident_of(const JobEnd& end, const Watch& watch) const;
  // Records the incident. Returns the exit code if the run ends here; otherwise waits before the next
  // attempt.
  std::optional<int> go_on(const Incident& incident, bool has_step);
  void write(const std::function<void()>& change);

  Job& job_;
  IncidentLog& log_;
  RestartPolicy policy_;
  std::function<void(const std::string&)> say_;
  std::optional<Incident> open_;  // the last incident, until a new step is made
  double incident_s_ = 0;         // when it happened, by the job's clock
};

}  // namespace ingot
