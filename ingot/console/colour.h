// Colours of a terminal, sparingly: warnings yellow, errors red, a best result green, labels dim. They never
// go into a file.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

enum class Colour { kRed, kGreen, kYellow, kDim };

// Whether output to `is_terminal` (or not) is coloured. NO_COLOR with any value says no (no-color.org);
// otherwise FORCE_COLOR says yes, or no if it is 0; otherwise a terminal is, unless TERM is unset or "dumb".
bool wants_colour(bool is_terminal);

// The text between the colour's escape sequences.
std::string painted(std::string_view text, Colour colour);

// A line of fields such as "loss 2.3145 | 118 ms": words that are no numbers are dim, "best" is green.
std::string painted_fields(std::string_view line);

}  // namespace ingot
