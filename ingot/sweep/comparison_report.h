// What a comparison shows: text for terminals, report.html.
#pragma once

#include <string>

#include "ingot/sweep/comparison.h"

namespace ingot {

// Tables of runs, differing settings and differences, below the smoothed training losses over each other.
std::string comparison_text(const Comparison& comparison);

std::string comparison_html(const Comparison& comparison);

}  // namespace ingot
