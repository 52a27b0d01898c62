// The steps of a tokenizer.json around its model: how text is normalized and split before BPE merges it, and
// how tokens become text again. The names are those of Hugging Face's library `tokenizers`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

struct NormalizerStep {
  enum class Type { kNfc, kNfd, kNfkc, kNfkd, kLowercase, kStrip, kPrepend, kReplace };
  Type type = Type::kNfc;
  std::string pattern;       // kReplace: the bytes that are replaced
  std::string content;       // kReplace, kPrepend: the bytes that are written
  bool strips_left = true;   // kStrip
  bool strips_right = true;  // kStrip
};

// PrependScheme selects the stretches of text that get a word marker or a space in front, unless they begin
// with one: none, the first of the text, or all.
enum class PrependScheme { kNever, kFirst, kAlways };

struct PreTokenizerStep {
  enum class Type { kSplit, kDigits, kPunctuation, kWhitespace, kWhitespaceSplit, kMetaspace, kByteLevel };
  // Behavior is the treatment of a match. In the order of the values, a match becomes a piece of its own,
  // nothing, the end of the previous piece, the start of the next piece, or one piece together with the
  // adjacent matches.
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  Type type = Type::kSplit;
  std::string pattern;                      // kSplit
  bool is_regex = false;                    // kSplit: the pattern is a regular expression, not a string
  bool inverts = false;                     // kSplit: the text between the matches counts as the matches
  Behavior behavior = Behavior::kIsolated;  // kSplit, kPunctuation
  bool isolates_digits = false;             // kDigits: each digit is a piece
  std::string marker;                       // kMetaspace: replaces each space
  PrependScheme prepend = PrependScheme::kNever;  // kMetaspace; kByteLevel: kAlways or kNever
  bool splits = true;  // kMetaspace: before each marker; kByteLevel: by GPT-2's expression
};

struct DecoderStep {
  enum class Type { kByteLevel, kByteFallback, kFuse, kStrip, kReplace, kMetaspace };
  Type type = Type::kByteLevel;
  std::string pattern;           // kReplace; kStrip: the character; kMetaspace: the marker
  std::string content;           // kReplace
  uint32_t start = 0, stop = 0;  // kStrip: characters at most, at either end
  bool drops_first = false;      // kMetaspace: the first token loses its markers
};

struct TokenizerPipeline {
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;
  std::vector<DecoderStep> decoders;
  bool is_byte_level = false;       // one pre-tokenizer is ByteLevel, so tokens are bytes
  bool has_byte_fallback = false;   // a character without a token becomes the tokens <0xNN> of its bytes
  bool fuses_unknown = false;       // neighbouring unknown characters become one unknown token
  std::optional<uint32_t> unknown;  // the token of characters that have no other
  std::string json;                 // the file as it was read, which is also what is written
};

}  // namespace ingot
