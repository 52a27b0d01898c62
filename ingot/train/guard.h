// Guard checks each step between its gradients and its update. It keeps values that are not finite out of
// the weights. A loss far above the recent ones is reported or, depending on the configuration, treated
// the same way. A gradient norm whose trend rises is reported.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/config/guard_config.h"
#include "ingot/train/spike_detector.h"

namespace ingot {

struct StepResult;  // train/trainer.h

struct Verdict {
  GuardPolicy policy = GuardPolicy::kReport;
  std::string event = {};   // "non_finite", "spike", "overflow" or "norm_rise"; empty if the step is normal
  std::string reason = {};  // explanation for the user
  bool is_accepted() const { return policy == GuardPolicy::kReport; }
};

// Throws the kNumerics error of a run that ends because of a step: "step 12: <reason>; the update was not
// made. Lower ...". alternative: what else helps, such as ", or choose another guard.spike".
[[noreturn]] void refuse_update(int64_t step, const std::string& reason, const std::string& alternative = "");

class Guard {
 public:
  explicit Guard(const GuardConfig& config);

  // Returns what to do with the step, and remembers loss and gradient norm of an accepted one. After
  // max_skips skips in a row or max_skips rollbacks the policy is kStop. A step that lowered the loss scale
  // is skipped regardless of the policies and is not counted, because the loss scaler has its own limit.
  Verdict judge(const StepResult& result);
  // Resets the count of rollbacks. Call it when a checkpoint is saved of a state that was not reached
  // before.
  void checkpoint_saved() { rollbacks_ = 0; }

  SpikeDetector& losses() { return losses_; }

  // The trend of the gradient norm: the median of the newer half of the last spike_window norms over the
  // median of the older half; nullopt while there are fewer. A verdict reports once that it reaches
  // guard.norm_rise, and again only after it was below the square root of guard.norm_rise.
  std::optional<double> norm_rise() const { return norms_.rise(); }
  // The norms, oldest first, and whether their rise was reported, for checkpoints.
  std::vector<double> norms() const { return norms_.values(); }
  bool is_rise_reported() const { return is_rise_reported_; }
  void set_norms(std::span<const double> norms, bool is_rise_reported);

 private:
  void add_norm(double norm, Verdict& verdict);

  GuardConfig config_;
  SpikeDetector losses_, norms_;
  bool is_rise_reported_ = false;
  int64_t skips_ = 0, rollbacks_ = 0;
};

}  // namespace ingot
