// GuardConfig says how the guard (train/guard.h) answers non-finite steps, loss spikes and a rising gradient
// norm. Plain data.
#pragma once

#include <cstdint>

namespace ingot {

enum class GuardPolicy {
  kReport,    // report it and continue
  kStop,      // end the run with an error
  kSkip,      // skip this batch: no update, and the step does not count
  kRollback,  // return to the newest good checkpoint and never use this batch again
};

struct GuardConfig {
  GuardPolicy non_finite = GuardPolicy::kStop;
  GuardPolicy spike = GuardPolicy::kReport;
  int64_t max_skips = 3;        // batches skipped in a row, or rollbacks without a new checkpoint; then stop
  int64_t spike_window = 64;    // number of recent losses and gradient norms, one per step
  double spike_threshold = 10;  // in robust deviations above the median
  double norm_rise = 2;         // warn if the gradient norm's trend rises by this factor; 0: never
  int64_t replica_hash_every = 100;  // steps between comparisons of the replicas' memory; 0: never
  int64_t verify_every = 0;          // steps between gradients that are computed twice and compared; 0: never
  bool watches_memory = false;       // compares every update's results with what the next update finds
  bool rolls_back() const { return non_finite == GuardPolicy::kRollback || spike == GuardPolicy::kRollback; }
  void validate() const;  // kUsage error
};

}  // namespace ingot
