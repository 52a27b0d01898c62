// "Did you mean": the names closest to one that was mistyped.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Edits (insert, delete, replace a character, swap two neighbours) from a to b, no place edited twice.
int edit_distance(std::string_view a, std::string_view b);

// The closest of the names, best first, at most three and all equally close; none if nothing is near: more
// than two edits, or more than half of the name's length, away.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names);

// "; did you mean a?", "; did you mean a or b?", or "" for none.
std::string did_you_mean(std::span<const std::string> nearest);

// "a, b, c".
std::string list_names(std::span<const std::string> names);

}  // namespace ingot
