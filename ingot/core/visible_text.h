// Makes text from outside (file names, prompts, samples) safe to show on a terminal or in a message.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

// Returns the text with everything that could control a terminal escaped: control characters and bytes
// that are not UTF-8 become \x1b, and C1 characters and those that change the writing direction become
// \u009b. Line breaks and tabs stay.
std::string visible_text(std::string_view text);
// The same in one line: line breaks and tabs become spaces.
std::string visible_line(std::string_view text);

}  // namespace ingot
