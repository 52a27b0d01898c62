// Mutations of JSON text that respect its structure, so that a fuzzer gets behind the parser's first checks.
#pragma once

#include <random>
#include <string>

namespace ingot {

// Returns `text` after one mutation: a number becomes an edge value, a value gets another type or is nested,
// a member is repeated, removed or moved, a string becomes a hostile one. Text in which no token is found is
// returned unchanged. The result may be longer than the text by a few kilobytes.
std::string mutate_json(const std::string& text, std::minstd_rand& random);

}  // namespace ingot
