// Text that was not written by Ingot (file names, prompts, samples) on a terminal or in a message.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

// The text with everything that could steer a terminal shown as an escape: control characters and bytes that
// are not UTF-8 as \x1b, characters of C1 and those that turn the direction of writing as \u009b. Line breaks
// and tabs stay.
std::string visible_text(std::string_view text);

}  // namespace ingot
