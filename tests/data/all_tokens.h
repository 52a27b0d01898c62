// Token sources of tests.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ingot/data/token_source.h"

namespace ingot {

// Returns all tokens of a TokenSource or TokenShard.
template <typename Source>
std::vector<uint32_t> all_tokens(const Source& source) {
  std::vector<uint32_t> tokens(static_cast<size_t>(source.tokens()));
  source.read(0, tokens);
  return tokens;
}

template <typename Id = uint32_t>
TokenSource source_of(std::vector<Id> tokens) {
  TokenSource source;
  source.add(std::move(tokens));
  return source;
}

}  // namespace ingot
