// Escapes text for XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

// Returns the text with & < > " ' as entities. Bytes that are not UTF-8 and characters that XML 1.0
// forbids (NUL, most control characters, U+FFFE, U+FFFF) become U+FFFD. The result is safe in an element
// and in a quoted attribute.
std::string escape_markup(std::string_view text);

}  // namespace ingot
