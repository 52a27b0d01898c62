// What a tokenizer file says, whatever its format. ingot/data builds tokenizers from it.
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
  std::vector<std::string> tokens;     // by id; empty: no ordinary token has this id
  std::vector<TokenizerMerge> merges;  // in order of rank
  bool takes_whole_pieces = false;     // a piece that is a token is not built by merges ("ignore_merges")
  std::string pattern;                 // regular expression of the pieces; empty: the text is one piece
  std::vector<AddedToken> added;       // in order of id; their ids are empty in `tokens`
};

// Limits that keep a hostile file from taking memory out of proportion to its size.
inline constexpr uint64_t kMaxTokenizerFileBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMaxUnusedTokenIds = 65536;
inline constexpr size_t kMaxTokenBytes = 1024;  // in a table of ranks; published tokens have at most 128

// Throws kData, naming `name`, unless: the spec has tokens; a kByteBpe vocabulary has all 256 bytes; no token
// occurs twice; added tokens have ids of their own.
void check_spec(const TokenizerSpec& spec, const std::string& name);

// The content of a token as a message shows it: printable ASCII as it is, other bytes as \xNN, at most 40.
std::string printable_token(const std::string& token);

}  // namespace ingot
