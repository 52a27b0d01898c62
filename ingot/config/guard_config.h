// What the guard does with steps that are not finite and with loss spikes (train/guard.h). Plain data.
#pragma once

#include <cstdint>

namespace ingot {

enum class GuardPolicy {
  kReport,    // say so and go on
  kStop,      // end the run with an error
  kSkip,      // leave out this batch: no update, no step counted
  kRollback,  // back to the newest good checkpoint, and never take this batch again
};

struct GuardConfig {
  GuardPolicy non_finite = GuardPolicy::kStop;
  GuardPolicy spike = GuardPolicy::kReport;
  int64_t max_skips = 3;        // batches skipped without an accepted one or, rolling back, a new checkpoint
  int64_t spike_window = 64;    // steps
  double spike_threshold = 10;  // robust deviations
  bool rolls_back() const { return non_finite == GuardPolicy::kRollback || spike == GuardPolicy::kRollback; }
  void validate() const;  // kUsage error
};

}  // namespace ingot
