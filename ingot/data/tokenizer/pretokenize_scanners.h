// Hand-written scanners for the published pre-tokenisation patterns.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ingot {

// Each function finds the next pieces from `begin` on, at most ends.size(). It writes their ends and returns
// their number.
size_t scan_gpt2(std::string_view text, size_t begin, std::span<size_t> ends);
size_t scan_cl100k(std::string_view text, size_t begin, std::span<size_t> ends);
size_t scan_o200k(std::string_view text, size_t begin, std::span<size_t> ends);
size_t scan_llama3(std::string_view text, size_t begin, std::span<size_t> ends);
size_t scan_qwen2(std::string_view text, size_t begin, std::span<size_t> ends);

// Returns true if position i is a piece boundary of all five patterns for any text around it: before a space
// that follows a character other than white space, or at the end of a run of letters that is not followed by
// a letter, a mark or an apostrophe. REQUIRES: 0 < i < text.size().
bool is_cut(std::string_view text, size_t i);

}  // namespace ingot
