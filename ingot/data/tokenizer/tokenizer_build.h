// Builds tokenizers from a specification that was read from a file or found by training.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/tokenizer_spec.h"

namespace ingot {

// The decoding side: maps ids to bytes.
class TokenVocab {
 public:
  explicit TokenVocab(const TokenizerSpec& spec);

  void append_bytes(TokenId id, std::string& out) const;  // kData error if the id has no token
  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }
  std::optional<TokenId> end_of_text() const { return end_of_text_; }

 private:
  std::string bytes_;             // bytes of all tokens, one after the other
  std::vector<uint64_t> begins_;  // size() + 1 offsets; an id without bytes has no token
  std::optional<TokenId> end_of_text_;
};

// REQUIRES: check_spec passes, and spec.kind is the function's kind. kData error if the pattern is not a
// valid expression.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerSpec spec);
std::unique_ptr<Tokenizer> make_character_tokenizer(TokenizerSpec spec);
std::unique_ptr<Tokenizer> make_pipeline_tokenizer(TokenizerSpec spec);

// Calls the one that spec.kind selects.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerSpec spec);

}  // namespace ingot
