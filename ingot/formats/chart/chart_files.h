// The interactive charts of report.html and `ingot serve`, built into the program: a script that defines
// IngotChart (chart.js says how it is used), the script that draws a report's charts, and their style.
#pragma once

#include <string_view>

namespace ingot {

std::string_view chart_script();
std::string_view report_script();
std::string_view chart_style();

}  // namespace ingot
