// Text made safe for XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

// The text with & < > " ' as entities. Bytes that are not UTF-8, and characters that XML 1.0 forbids (NUL,
// most control characters, U+FFFE, U+FFFF), become U+FFFD; the result can stand in an element or in a quoted
// attribute.
std::string escape_markup(std::string_view text);

}  // namespace ingot
