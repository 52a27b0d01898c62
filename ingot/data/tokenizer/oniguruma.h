// Translates the regular expressions of a tokenizer.json for PCRE2. They are written in Ruby's syntax for
// Oniguruma, the engine of the library `tokenizers`.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

// Returns an expression that PCRE2 (PCRE2_UTF | PCRE2_UCP) matches as Oniguruma matches `expression`: ^ and $
// match at lines, \s is White_Space, \w has marks and all connectors, \h is a hexadecimal digit, \uXXXX is a
// character. kData error for syntax without a counterpart: sets inside sets, &&, and a + after {n,m}.
std::string pcre2_from_oniguruma(std::string_view expression);

// Returns at most the first 200 bytes of the expression, for an error message.
std::string shown_pattern(std::string_view expression);

}  // namespace ingot
