// .tiktoken files: one "BASE64 RANK" per line. The rank is the token's id and its priority in merging.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Returns the tokens by rank, with empty strings for ranks that the file leaves out. kData error
// "name:line: ..." for anything malformed: bad base64, a rank that occurs twice or is out of proportion,
// a file without tokens. The caller must check for tokens that occur twice (check_spec).
std::vector<std::string> read_tiktoken(std::string_view text, const std::string& name);

// Returns the text of a file with these tokens. Empty strings are left out.
std::string write_tiktoken(const std::vector<std::string>& tokens);

}  // namespace ingot
