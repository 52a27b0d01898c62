// Describes tokenizers of SentencePiece's kind (Llama 2, Mistral) as llama.cpp needs them: BPE on characters,
// with a mark for spaces and with tokens <0xNN> for the bytes of characters that have no token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/formats/tokenizer_spec.h"

namespace ingot {

bool is_sentencepiece_like(const TokenizerSpec& spec);

// SentencePiece holds what llama.cpp needs in addition to the tokens. llama.cpp has no merges: of all
// neighbours that form a token together, it joins those whose token has the highest score.
struct SentencePiece {
  std::vector<float> scores;  // by token id; the tokens of earlier merges have higher ones
  bool adds_space = false;    // a space is put before the text
  std::vector<std::string> notes = {};
};

// Throws a kData error that states the cause if llama.cpp would give other ids: another normalizer or
// pre-tokenizer, bytes without a token, or merges that leave out a pair of tokens which form a third one.
// REQUIRES: is_sentencepiece_like(spec).
SentencePiece sentencepiece_of(const TokenizerSpec& spec);

// Returns true for the tokens <0x00> to <0xFF>.
bool is_byte_token(const std::string& token);

}  // namespace ingot
