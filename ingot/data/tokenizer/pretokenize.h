// Pre-tokenisation: cutting text into the pieces inside which byte pairs merge, as a regular expression says.
//
// The patterns of GPT-2, cl100k, o200k, Llama 3 and Qwen 2 have hand-written scanners over Unicode 16.0
// classes; any other goes to PCRE2 (whose tables may be of another Unicode version). Pieces cover the whole
// text: what a pattern does not match is a piece too, as is every run of bytes that is not UTF-8 (a scanner
// takes such a byte for a symbol, like punctuation).
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

class Pretokenizer {
 public:
  // A name (gpt2, cl100k, o200k, llama3, qwen2), a regular expression, or empty: the whole text is one piece.
  // kData error for an expression that PCRE2 refuses.
  explicit Pretokenizer(std::string_view pattern);

  // The names that the constructor knows.
  static std::vector<std::string_view> names();

  // The expression, as tokenizer.json carries it.
  const std::string& expression() const { return expression_; }
  bool has_scanner() const { return scan_ != nullptr; }

  // The first position in [from, text.size()) at which every text may be cut into two that are split
  // independently, whatever stands before and after; text.size() if there is none or the pattern is unknown.
  // Looking back, the cut is one of the ends that splitting the whole text gives.
  size_t find_cut(std::string_view text, size_t from) const;

 private:
  friend class PieceReader;
  using Scan = size_t (*)(std::string_view text, size_t begin, std::span<size_t> ends);

  std::string expression_;
  Scan scan_ = nullptr;
  std::shared_ptr<const Regex> regex_;  // shared by copies; immutable
};

// Reads the pieces of text[begin, end) in order. What follows `end` is seen by lookahead.
// REQUIRES: begin and end are 0, text.size() or cuts; the pretokenizer and the text outlive the reader.
class PieceReader {
 public:
  PieceReader(const Pretokenizer& pretokenizer, std::string_view text, size_t begin, size_t end);
  ~PieceReader();
  PieceReader(PieceReader&&) noexcept;

  // The ends of the next pieces, at most ends.size() of them; each piece begins where the one before ended.
  // 0 at the end.
  size_t next(std::span<size_t> ends);

 private:
  size_t next_matches(std::span<size_t> ends);

  const Pretokenizer* pretokenizer_;  // borrowed
  std::string_view text_;
  size_t position_, end_;
  size_t valid_begin_ = 0, valid_end_;  // the stretch of valid UTF-8 that an expression is matched in
  std::unique_ptr<RegexMatch> match_;
};

}  // namespace ingot
