// Regular expressions of tokenizer.json are written for Oniguruma with Ruby's syntax, the engine of the library
// `tokenizers`. This translates them for PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

// Returns an expression that PCRE2 (PCRE2_UTF | PCRE2_UCP) matches as Oniguruma matches `expression`: ^ and $ match at
// lines, \s is White_Space, \w has marks and all connectors, \h is a hexadecimal digit, \uXXXX is a character. kData
// error for what has no counterpart: sets inside sets, &&, and a + after {n,m}.
std::string pcre2_from_oniguruma(std::string_view expression);

// Returns an expression for an error message: at most its first 200 bytes.
std::string shown_pattern(std::string_view expression);

}  // namespace ingot
