// Renders a comparison as text for a terminal and as a page, report.html.
#pragma once

#include <string>

#include "ingot/sweep/comparison.h"

namespace ingot {

// Returns a plot of the smoothed training losses, and below it the tables of runs, differing settings and
// differences.
std::string comparison_text(const Comparison& comparison);

std::string comparison_html(const Comparison& comparison);

}  // namespace ingot
