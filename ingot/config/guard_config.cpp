#include "ingot/config/guard_config.h"

#include "ingot/core/error.h"

namespace ingot {

void GuardConfig::validate() const {
  if (max_skips < 0) fail(ErrorKind::kUsage, "guard.max_skips must not be negative, got {}", max_skips);
  if (spike_window < 8)
    fail(ErrorKind::kUsage, "guard.spike_window must be at least 8, got {}", spike_window);
  if (!(spike_threshold > 0))
    fail(ErrorKind::kUsage, "guard.spike_threshold must be above 0, got {}", spike_threshold);
  if (norm_rise != 0 && !(norm_rise > 1))
    fail(ErrorKind::kUsage, "guard.norm_rise must be above 1, or 0 for no warning, got {}", norm_rise);
}

}  // namespace ingot
