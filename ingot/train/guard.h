// Guard: judges a step between its gradients and its update. What is not finite never reaches the weights; a
// loss far above those before it is reported, or treated the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ingot/config/guard_config.h"
#include "ingot/train/spike_detector.h"

namespace ingot {

struct StepResult;  // train/trainer.h

struct Verdict {
  GuardPolicy policy = GuardPolicy::kReport;
  std::string event = {};   // "non_finite", "spike" or "overflow"; empty: nothing to say
  std::string reason = {};  // in words
  bool is_accepted() const { return policy == GuardPolicy::kReport; }
};

class Guard {
 public:
  explicit Guard(const GuardConfig& config);

  // Remembers the loss of an accepted step. Beyond max_skips the policy is kStop. A step whose gradients
  // lowered the loss scale is skipped whatever the policies are, and not counted: the scale has its own end.
  Verdict judge(const StepResult& result);
  // A checkpoint of a state that was not reached before was saved: rolling back may begin to count anew.
  void checkpoint_saved() { rollbacks_ = 0; }

  SpikeDetector& losses() { return losses_; }

 private:
  GuardConfig config_;
  SpikeDetector losses_;
  int64_t skips_ = 0, rollbacks_ = 0;
};

}  // namespace ingot
