// Guard checks each step between its gradients and its update. It keeps values that are not finite out of
// the weights. A loss far above the recent ones is reported or, depending on the configuration, treated
// the same way.
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
  std::string event = {};   // "non_finite", "spike" or "overflow"; empty if the step is normal
  std::string reason = {};  // explanation for the user
  bool is_accepted() const { return policy == GuardPolicy::kReport; }
};

// Throws the kNumerics error of a run that ends because of a step: "step 12: <reason>; the update was not
// made. Lower ...". alternative: what else helps, such as ", or choose another guard.spike".
[[noreturn]] void refuse_update(int64_t step, const std::string& reason, const std::string& alternative = "");

class Guard {
 public:
  explicit Guard(const GuardConfig& config);

  // Returns what to do with the step, and remembers the loss of an accepted one. After max_skips skips in
  // a row or max_skips rollbacks the policy is kStop. A step that lowered the loss scale is skipped
  // regardless of the policies and is not counted, because the loss scaler has its own limit.
  Verdict judge(const StepResult& result);
  // Resets the count of rollbacks. Call it when a checkpoint is saved of a state that was not reached
  // before.
  void checkpoint_saved() { rollbacks_ = 0; }

  SpikeDetector& losses() { return losses_; }

 private:
  GuardConfig config_;
  SpikeDetector losses_;
  int64_t skips_ = 0, rollbacks_ = 0;
};

}  // namespace ingot
