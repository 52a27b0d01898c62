// Job is the interface through which a supervisor sees the processes of one attempt of a run. LocalJob
// (launch/local_job.h) starts real processes; tests simulate the processes and the clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ingot/launch/incident.h"

namespace ingot {

// The newest sign of life of a rank in this attempt.
struct RankSign {
  int rank = 0;
  std::string host = {};
  std::string phase = {};                    // as in heartbeat.json
  int64_t count = 0;                         // grows with every sign
  int64_t step = 0;                          // finished steps
  int64_t first_step = -1;                   // finished steps when the attempt began to make steps; -1 before
  double limit_s = 0;                        // how long the next sign may take
  bool is_gone = false, is_stopped = false;  // false too if its machine is another one
};

// JobEnd describes the end of a job.
struct JobEnd {
  enum class Status { kCompleted, kInterrupted, kFailed };
  Status status = Status::kFailed;
  Incident cause = {};  // of a failed job, as far as its processes report it; without time and step
};

class Job {
 public:
  virtual ~Job() = default;

  // Finds out where the next attempt can run, which may take seconds.
  virtual void prepare() {}
  // Starts the processes, from the newest good checkpoint if there is one. REQUIRES: no other attempt runs.
  virtual void start() = 0;
  // Returns how the job ended once its launcher has ended; nullopt as long as it runs.
  virtual std::optional<JobEnd> end() = 0;
  // Returns the ranks that have given a sign of life in this attempt.
  virtual std::vector<RankSign> signs() = 0;
  // Asks all ranks to save and end. They may take as long as their time limits allow. A rank that has not
  // begun may miss the request, so the supervisor repeats it until the job has ended; a repetition does not
  // disturb a rank that is saving.
  virtual void ask_to_end() = 0;
  // Kills every process of the job, and returns when they are gone.
  virtual void kill() = 0;
  // Returns the number of ranks that the next start() will have; less than before if hosts are lost.
  virtual int ranks() = 0;
  // Returns false if the run's folder existed and is gone: removed or renamed.
  virtual bool has_folder() { return true; }
  virtual int64_t saved_step() = 0;  // of the newest checkpoint; -1 if there is none

  virtual double now_s() = 0;  // a steady clock
  // Waits this long, or less if the user asks the supervisor to end.
  virtual void pause(double seconds) = 0;
  virtual int signals() = 0;  // number of times that the user asked the supervisor to end
};

}  // namespace ingot
