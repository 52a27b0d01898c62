// TokenDecoder turns tokens into text by the decoder of a tokenizer.json. It writes all bytes as they are,
// even those that form no character (the library `tokenizers` writes U+FFFD for them).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/formats/tokenizer_spec.h"

namespace ingot {

class TokenDecoder {
 public:
  explicit TokenDecoder(const TokenizerSpec& spec);

  // Returns the text of a token that is not the first one. REQUIRES: id is below the number of ids.
  std::string_view text_of(uint32_t id) const { return texts_[id]; }

  // Appends the text of the whole sequence, which loses the space that the encoder puts before a text.
  void append_all(std::span<const uint32_t> ids, std::string& out) const;

 private:
  std::string decode_token(std::string token, bool is_first) const;

  std::vector<DecoderStep> steps_;
  bool is_byte_level_;
  bool has_first_rule_ = false;      // the first token of a sequence is decoded differently
  size_t fuse_ = 0;                  // index in steps_ of Fuse; the steps after it see the whole text
  std::vector<std::string> tokens_;  // as the file spells them; bytes in a byte-level vocabulary
  std::vector<std::string> texts_;
};

}  // namespace ingot
