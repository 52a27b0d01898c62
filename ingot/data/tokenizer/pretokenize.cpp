#include "ingot/data/tokenizer/pretokenize.h"

#include <algorithm>
#include <array>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/pretokenize_regex.h"
#include "ingot/data/tokenizer/pretokenize_scanners.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace {

using Scan = size_t (*)(std::string_view text, size_t begin, std::span<size_t> ends);

struct Known {
  std::string_view name;
  Scan scan;
  std::string_view expression;
};

// The first expression of a name is the one that is written to files. The others are equivalent
// spellings found in tokenizer.json files. cl100k's \z is tiktoken's $; in Oniguruma, $ also
// matches before a newline.
constexpr std::array kKnown = {
    Known{"gpt2", scan_gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    Known{"gpt2", scan_gpt2,
          R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    Known{"cl100k", scan_cl100k,
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
          R"(|\s++\z|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Known{"cl100k", scan_cl100k,
          R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
          R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
    Known{"o200k", scan_o200k,
          R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
          R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Known{"llama3", scan_llama3,
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
          R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Known{"qwen2", scan_qwen2,
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
          R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

}  // namespace

Pretokenizer::Pretokenizer(std::string_view pattern) : expression_(pattern) {
  for (const Known& known : kKnown) {
    if (pattern != known.name && pattern != known.expression) continue;
    expression_ = known.expression;
    scan_ = known.scan;
    return;
  }
  if (!pattern.empty()) regex_ = std::make_shared<const Regex>(expression_);
}

std::vector<std::string_view> Pretokenizer::names() {
  std::vector<std::string_view> names;
  for (const Known& known : kKnown)
    if (names.empty() || names.back() != known.name) names.push_back(known.name);
  return names;
}

std::string_view Pretokenizer::name_of(std::string_view expression) {
  const auto found = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const Known& known) { return known.expression == expression; });
  return found == kKnown.end() ? std::string_view() : found->name;
}

size_t Pretokenizer::find_cut(std::string_view text, size_t from) const {
  if (!scan_) return text.size();
  for (size_t i = std::max<size_t>(from, 1); i < text.size(); ++i)
    if (is_cut(text, i)) return i;
  return text.size();
}

PieceReader::PieceReader(const Pretokenizer& pretokenizer, std::string_view text, size_t begin, size_t end)
    : pretokenizer_(&pretokenizer), text_(text), position_(begin), end_(end), valid_end_(begin) {
  if (pretokenizer.regex_) match_ = std::make_unique<RegexMatch>(*pretokenizer.regex_);
}
PieceReader::~PieceReader() = default;
PieceReader::PieceReader(PieceReader&&) noexcept = default;

size_t PieceReader::next(std::span<size_t> ends) {
  if (position_ >= end_ || ends.empty()) return 0;
  size_t count = 0;
  if (pretokenizer_->scan_) {
    count = pretokenizer_->scan_(text_, position_, ends);
    while (count > 1 && ends[count - 2] >= end_) --count;  // drops pieces that begin after the range
  } else if (match_) {
    count = next_matches(ends);
  } else {
    ends[count++] = end_;
  }
  position_ = ends[count - 1];
  return count;
}

// The expression is matched inside stretches of valid UTF-8. The text between two matches is a piece; so
// is a run of invalid bytes.
size_t PieceReader::next_matches(std::span<size_t> ends) {
  size_t count = 0;
  for (size_t i = position_; i < end_ && count < ends.size();) {
    if (i >= valid_end_) {
      valid_begin_ = i;
      valid_end_ = std::min(valid_utf8_end(text_, i), end_);
      if (valid_end_ == i) {
        while (i < end_ && !decode_utf8(text_, i).is_valid()) ++i;
        ends[count++] = i;
        valid_end_ = i;
        continue;
      }
    }
    const std::string_view valid = text_.substr(valid_begin_, valid_end_ - valid_begin_);
    const auto found = match_->find(valid, i - valid_begin_);
    const size_t begin = found ? valid_begin_ + found->begin : valid_end_;
    // A gap ends where the match begins; the next iteration finds the match again from there.
    i = begin > i ? begin : valid_begin_ + found->end;
    ends[count++] = i;
  }
  return count;
}

}  // namespace ingot
