// "Did you mean": finds the names closest to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Number of edits (insert, delete or replace a character, swap two neighbours) from a to b; no substring
// is edited twice.
int edit_distance(std::string_view a, std::string_view b);

// Returns the closest of the names, best first: at most three, all at the same distance. Empty if every
// name is more than two edits, or more than half of the name's length, away.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names);

// Returns "; did you mean a?", "; did you mean a or b?", or "" if there are no names.
std::string did_you_mean(std::span<const std::string> nearest);

// Returns "a, b, c".
std::string list_names(std::span<const std::string> names);

}  // namespace ingot
