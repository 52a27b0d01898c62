// Line charts in plain text, for a terminal of any kind: no colours, no escape codes, ASCII only.
#pragma once

#include <string>

#include "ingot/formats/svg_plot.h"

namespace ingot {

// The plot's series in a field of columns x rows characters, beside its labels; series i is drawn with the
// i-th of "*o+x#". Points that are not finite are left out; logarithmic axes are not drawn as such. The y
// axis spans the data, and 0 where the plot says so. kInternal error below 16 x 4.
std::string render_text(const LinePlot& plot, int columns, int rows);

}  // namespace ingot
