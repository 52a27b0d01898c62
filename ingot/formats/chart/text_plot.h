// Line charts in plain text for any terminal: ASCII only, no colours, no escape codes.
#pragma once

#include <string>

#include "ingot/formats/chart/svg_plot.h"

namespace ingot {

// Draws the plot's series in columns x rows characters, with labels next to them. Series i uses the i-th
// character of "*o+x#", repeating after five. Points that are not finite are left out; logarithmic axes are
// drawn linear. The y axis covers the data, and 0 if plot.includes_zero. kInternal error if the size is
// below 16 x 4.
std::string render_text(const LinePlot& plot, int columns, int rows);

}  // namespace ingot
