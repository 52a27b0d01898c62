// The content of a tokenizer file, whatever its format. ingot/data builds tokenizers from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

struct TokenizerMerge {
  uint32_t left, right, result;  // token ids
};

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool is_special = true;
};

struct TokenizerSpec {
  enum class Kind {
    kByteBpe,     // tokens are bytes; every single byte is a token
    kCharacters,  // tokens are UTF-8 characters; no merges
  };
  Kind kind = Kind::kByteBpe;
  std::vector<std::string> tokens;     // indexed by id; empty if the id is not an ordinary token
  std::vector<TokenizerMerge> merges;  // in order of rank
  bool takes_whole_pieces = false;     // a piece that is a token is not split and merged ("ignore_merges")
  std::string pattern;                 // regular expression of the pieces; empty: the text is one piece
  std::vector<AddedToken> added;       // in order of id; their entries in `tokens` are empty
};

// Limits that keep a hostile file from using memory out of proportion to its size.
inline constexpr uint64_t kMaxTokenizerFileBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMaxUnusedTokenIds = 65536;
inline constexpr size_t kMaxTokenBytes = 1024;  // for .tiktoken files; published tokens have at most 128

// kData error that names `name` unless the spec has tokens, a kByteBpe vocabulary has all 256 bytes, no
// token occurs twice, and added tokens have their own ids.
void check_spec(const TokenizerSpec& spec, const std::string& name);

// The token as messages show it: its first 40 bytes, printable ASCII unchanged and other bytes as \xNN.
std::string printable_token(const std::string& token);

}  // namespace ingot
