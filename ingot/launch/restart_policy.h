// RestartPolicy decides whether a job that ended is started again, and after which pause. It only compares
// how attempts ended; it starts nothing and reads no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ingot/launch/incident.h"

namespace ingot {

// AttemptEnd describes the end of an attempt that did not complete the run.
struct AttemptEnd {
  Incident incident;
  bool has_step = false;    // it finished a step
  int64_t saved_step = -1;  // the step of the newest checkpoint; -1: there is none
};

struct RestartDecision {
  bool restarts = false;
  double pause_s = 0;   // before the next attempt; 0 after one that saved a newer checkpoint
  std::string why_not;  // if it does not restart
};

class RestartPolicy {
 public:
  static constexpr double kLongestPause_s = 60;
  // Attempts in a row that get no further than an earlier one, and attempts without a newer checkpoint.
  static constexpr int kMaxWithoutStep = 3, kMaxWithoutCheckpoint = 10;

  // most_restarts: nullopt for any number, as long as the run makes progress.
  explicit RestartPolicy(std::optional<int> most_restarts) : most_restarts_(most_restarts) {}

  RestartDecision judge(const AttemptEnd& end);

 private:
  std::string reason_to_stop(const AttemptEnd& end) const;

  std::optional<int> most_restarts_;
  int restarts_ = 0;
  int without_step_ = 0, without_checkpoint_ = 0;
  int64_t furthest_step_ = -1, saved_step_ = -1;
  std::optional<AttemptEnd> before_;
};

}  // namespace ingot
