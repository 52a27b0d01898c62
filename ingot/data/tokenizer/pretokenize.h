// Pre-tokenisation cuts text into pieces with a regular expression; byte pairs merge only inside a piece.
//
// The patterns of GPT-2, cl100k, o200k, Llama 3 and Qwen 2 have hand-written scanners over Unicode 16.0
// classes; PCRE2 matches all others (its tables may be of another Unicode version). The pieces cover the
// whole text: the text between two matches is a piece too, and so is every run of bytes that are not UTF-8.
// A scanner instead treats such a byte as a symbol, like punctuation.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class Regex;
class RegexMatch;

// The longest of DeepSeek V3's expressions, which has no scanner.
inline constexpr std::string_view kDeepSeek3Expression =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

class Pretokenizer {
 public:
  // `pattern` is a name (gpt2, cl100k, o200k, llama3, qwen2), a regular expression, or empty; if it is
  // empty, the whole text is one piece. kData error if PCRE2 refuses the expression.
  explicit Pretokenizer(std::string_view pattern);

  // Returns the names that the constructor knows.
  static std::vector<std::string_view> names();
  // Returns the name of an expression that has a scanner, or an empty string.
  static std::string_view name_of(std::string_view expression);

  // The regular expression as it is written to tokenizer.json.
  const std::string& expression() const { return expression_; }
  bool has_scanner() const { return scan_ != nullptr; }

  // Returns the first position in [from, text.size()) where the text may be cut in two: splitting each part
  // separately gives the pieces of the whole text, for any text before and after it. Returns text.size() if
  // there is no such position or the pattern has no scanner.
  size_t find_cut(std::string_view text, size_t from) const;

 private:
  friend class PieceReader;
  using Scan = size_t (*)(std::string_view text, size_t begin, std::span<size_t> ends);

  std::string expression_;
  Scan scan_ = nullptr;
  std::shared_ptr<const Regex> regex_;  // shared by copies; immutable
};

// PieceReader reads the pieces of text[begin, end) in order. Lookahead sees the text after `end`.
// REQUIRES: each of begin and end is 0, text.size() or a cut of find_cut(); the pretokenizer and the text
// outlive the reader.
class PieceReader {
 public:
  PieceReader(const Pretokenizer& pretokenizer, std::string_view text, size_t begin, size_t end);
  ~PieceReader();
  PieceReader(PieceReader&&) noexcept;

  // Writes the ends of the next pieces, at most ends.size(), and returns their number, 0 at the end of
  // the text. Each piece begins where the previous one ended.
  size_t next(std::span<size_t> ends);

 private:
  size_t next_matches(std::span<size_t> ends);

  const Pretokenizer* pretokenizer_;  // borrowed
  std::string_view text_;
  size_t position_, end_;
  size_t valid_begin_ = 0, valid_end_;  // the range of valid UTF-8 in which the expression is matched
  std::unique_ptr<RegexMatch> match_;
};

}  // namespace ingot
