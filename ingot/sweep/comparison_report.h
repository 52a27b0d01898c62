// What a comparison shows: text for terminals, report.html and JSON.
#pragma once

#include <string>

#include "ingot/sweep/comparison.h"

namespace ingot {

// Tables of runs, differing settings and differences, below the smoothed training losses over each other.
std::string comparison_text(const Comparison& comparison);

std::string comparison_html(const Comparison& comparison);

// {"runs": [{"run", "group", "status", "seed", "steps", "tokens", "val_loss", "val_bits_per_byte", "tokens_per_s",
// "peak_rss_bytes"}], "groups": [{"name", "runs"}], "settings": [{"key", "values"}], "differences": [{"group", "quantity",
// "mean", "interval": [low, high], "method", "verdict"}], "remarks"}. Groups and runs are indices; what there is not is
// null.
std::string comparison_json(const Comparison& comparison);

}  // namespace ingot
