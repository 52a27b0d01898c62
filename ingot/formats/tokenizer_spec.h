// The content of a tokenizer file, whatever its format. ingot/data builds tokenizers from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/formats/tokenizer/tokenizer_pipeline.h"

namespace ingot {

struct TokenizerMerge {
  uint32_t left, right, result;  // token ids
};

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool is_special = true;
  // Rules for finding the token in text, as in the library `tokenizers`: not next to a letter or digit; with
  // the white space to its left; with that to its right; in normalized text.
  bool is_single_word = false, strips_left = false, strips_right = false, is_normalized = false;
};

struct TokenizerSpec {
  enum class Kind {
    kByteBpe,     // tokens are bytes; every single byte is a token
    kCharacters,  // tokens are UTF-8 characters; no merges
    kPipeline,    // BPE within the steps of `pipeline`; tokens are bytes if it is byte-level, else UTF-8
  };
  Kind kind = Kind::kByteBpe;
  std::vector<std::string> tokens;     // indexed by id; empty if the id is not an ordinary token
  std::vector<TokenizerMerge> merges;  // in order of rank
  bool takes_whole_pieces = false;     // a piece that is a token is not split and merged ("ignore_merges")
  std::string pattern;                 // regular expression of the pieces; empty: the text is one piece
  // In order of id. Their entries in `tokens` are empty, except those of kPipeline's ordinary added tokens
  // that are in the model's vocabulary too.
  std::vector<AddedToken> added;
  TokenizerPipeline pipeline;  // kPipeline
};

// Limits that keep a hostile file from using memory out of proportion to its size.
inline constexpr uint64_t kMaxTokenizerFileBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMaxUnusedTokenIds = 65536;
inline constexpr size_t kMaxTokenBytes = 1024;  // for .tiktoken files; published tokens have at most 128

// kData error that names `name` unless the spec has tokens, a byte-level vocabulary has all 256 bytes or an
// unknown token, no token occurs twice, and added tokens have their own ids.
void check_spec(const TokenizerSpec& spec, const std::string& name);

// The token as messages show it: its first 40 bytes, printable ASCII unchanged and other bytes as \xNN.
std::string printable_token(const std::string& token);

}  // namespace ingot
