// Terminal colours: warnings are yellow, errors red, a best result green, and labels dim. Colours are
// never written to a file.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

enum class Colour { kRed, kGreen, kYellow, kDim };

// Returns true if output is coloured. NO_COLOR with any value turns colours off (no-color.org). Otherwise
// FORCE_COLOR turns them on, or off if it is 0. Otherwise only terminals are coloured, except if TERM is
// unset or "dumb".
bool wants_colour(bool is_terminal);

// Returns the text with the colour's escape sequence before it and a reset after it.
std::string painted(std::string_view text, Colour colour);

// Colours a line of fields such as "loss 2.3145 | 118 ms": "best" is green, words other than numbers are dim.
std::string painted_fields(std::string_view line);

}  // namespace ingot
