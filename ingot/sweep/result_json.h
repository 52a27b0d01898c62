// The results of sweeps, range tests and comparisons as JSON. Figures that are missing or not finite are
// null.
#pragma once

#include <string>
#include <vector>

#include "ingot/sweep/comparison.h"
#include "ingot/sweep/lr_range.h"
#include "ingot/sweep/sweep_files.h"

namespace ingot {

// The text of sweep.json.
std::string sweep_json(const SweepRecord& record, const std::vector<SweepRun>& runs,
                       const std::vector<RunResult>& results);

// {"from", "to", "steps", "knee", "rises_at", "interval": [low, high], "problem", "vary", "points": [{"lr",
// "loss", "smoothed"}]}. What there is not is null.
std::string lr_range_json(const LrRange& range, const LrRangeSpec& spec);

// {"runs": [{"run", "group", "status", "seed", "steps", "tokens", "val_loss", "val_bits_per_byte",
// "figures", "tokens_per_s", "peak_rss_bytes"}], "groups": [{"name", "runs"}],
// "settings": [{"key", "values"}],
// "differences": [{"group", "quantity", "mean", "interval": [low, high], "method", "verdict"}], "remarks"}.
// Groups and runs are indices; what there is not is null.
std::string comparison_json(const Comparison& comparison);

}  // namespace ingot
