// The text of a console's live line, cut to the terminal's width. Its fields are in order of importance,
// separated by " | "; fields that do not fit are left out whole, from the end.
#pragma once

#include <string>
#include <string_view>

#include "ingot/console/console.h"

namespace ingot {

// Number of terminal cells that the UTF-8 text takes: 2 for a wide character, 0 for a combining one. A
// byte that is not UTF-8 counts as one cell.
int display_cells(std::string_view text);

// Returns the leading fields that take at most `cells`. If the first field does not fit, returns its
// leading words that do; empty if the first word does not fit.
std::string fit_fields(std::string_view text, int cells);

// "step  120/2000   6.0% | eta 3m41s | loss 2.3145 | 138.9k tok/s | 118 ms | lr 3.0e-4 | norm 0.91 |
// mfu 41.2%", cut as by fit_fields. If progress, eta and loss do not fit together, progress is a percentage.
std::string format_live_step(const StepReport& report, int cells);

}  // namespace ingot
