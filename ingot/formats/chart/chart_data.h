// The data of an interactive chart (chart.js) in a page.
#pragma once

#include <string>

#include "ingot/formats/chart/svg_plot.h"

namespace ingot {

// Returns true for a plot that chart.js draws: without bars and without names on the x axis.
bool is_interactive(const LinePlot& plot);

// Returns the plot as JSON for an element <script type="application/json">: {"title", "unit", "x", "logX",
// "logY", "series": [{"name", "color", "style", "px", "py", "low", "high"}]}. A series has at most 2000
// points; those of longer ones are means of their neighbours, with their least and largest values. The text
// has no <, > or &, and ends no element. REQUIRES: is_interactive(plot).
std::string chart_data(const LinePlot& plot);

}  // namespace ingot
