// .tiktoken files: one "BASE64 RANK" per line; the rank is the token's id and its priority in merging.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// The tokens by rank; empty strings where the file leaves ranks out. kData error, as "name:line: ...", for
// anything malformed: base64, a rank or token that occurs twice, a rank out of proportion, no line at all.
std::vector<std::string> read_tiktoken(std::string_view text, const std::string& name);

// The file of these tokens; empty strings are left out.
std::string write_tiktoken(const std::vector<std::string>& tokens);

}  // namespace ingot
