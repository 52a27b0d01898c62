// BpeSymbols finds the tokens that merging begins with, for vocabularies that are not byte-level or lack
// some bytes. A character (byte-level: a byte) becomes its token; without one, its byte tokens <0xNN>;
// without these, the unknown token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/tokenizer/token_index.h"
#include "ingot/formats/tokenizer/tokenizer_pipeline.h"

namespace ingot {

class BpeSymbols {
 public:
  // `index` is borrowed.
  BpeSymbols(const TokenIndex& index, const TokenizerPipeline& pipeline);

  // Writes the ids of the piece (at most piece.size()) to `out` and returns their end. A byte that is not
  // UTF-8 counts as a character. kData error for a character without tokens if there is no unknown token.
  uint32_t* write(std::string_view piece, uint32_t* out) const;

 private:
  uint32_t id_of(std::string_view character) const;
  uint32_t* write_bytes(std::string_view character, uint32_t* out) const;  // null if a byte token is missing

  const TokenIndex* index_;
  bool is_byte_level_, has_byte_fallback_, fuses_unknown_;
  uint32_t unknown_;                         // TokenIndex::kNone if there is none
  std::array<uint32_t, 256> single_byte_{};  // ids of strings of one byte, or kNone
  std::array<uint32_t, 256> fallback_{};     // ids of <0xNN>, or kNone
};

}  // namespace ingot
