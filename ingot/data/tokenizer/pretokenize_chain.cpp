#include "ingot/data/tokenizer/pretokenize_chain.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "ingot/data/tokenizer/pretokenize_regex.h"
#include "ingot/data/tokenizer/unicode.h"
#include "ingot/formats/byte_chars.h"

namespace ingot {
namespace {

using PreType = PreTokenizerStep::Type;
using Behavior = PreTokenizerStep::Behavior;

constexpr const char* kWhitespaceExpression =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\p{White_Space}]+)";

// Expressions without a match that contains a space, so that a cut before a space changes nothing else.
constexpr std::array<std::string_view, 9> kWithoutSpaces = {
    R"(\p{N}{1,3})", R"(\p{N})",   R"(\p{N}+)",
    R"(\d)",         R"(\d{1,3})", "[0-9]",
    "[0-9]+",        "[\r\n]",     "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"};
// The expressions of DeepSeek V3 and of Mistral's Tekken: in each alternative a space is only the first
// character or follows white space, and white space always matches.
constexpr std::array<std::string_view, 2> kSplitAtSpaces = {
    kDeepSeek3Expression, R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                          R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                          R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

template <size_t n>
bool contains(const std::array<std::string_view, n>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

struct Match {
  size_t begin, end;
  bool is_match;  // false: text between matches
};

bool is_number(CodePoint c) { return c.is_valid() && char_class(c.value) == CharClass::kNumber; }
bool is_white_space(CodePoint c) { return c.is_valid() && char_class(c.value) == CharClass::kSpace; }
bool is_punctuation(CodePoint c) {
  if (!c.is_valid()) return false;
  if (c.value < 0x80)
    return std::string_view("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~").find(static_cast<char>(c.value)) !=
           std::string_view::npos;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c.value));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

using CharTest = bool (*)(CodePoint c);

void match_characters(std::string_view text, CharTest test, std::vector<Match>& matches) {
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    const bool is_match = test(c);
    if (!is_match && !matches.empty() && !matches.back().is_match)
      matches.back().end += c.length_bytes;
    else
      matches.push_back({i, i + c.length_bytes, is_match});
    i += c.length_bytes;
  }
}

void match_string(std::string_view text, std::string_view pattern, std::vector<Match>& matches) {
  for (size_t i = 0; i < text.size();) {
    const size_t found = std::min(text.find(pattern, i), text.size());
    if (found > i) matches.push_back({i, found, false});
    if (found == text.size()) break;
    matches.push_back({found, found + pattern.size(), true});
    i = found + pattern.size();
  }
}

// Appends the matches of the regex and the text between them. Steps over empty matches as Oniguruma's Rust
// binding does: one that begins where the last match ended does not count, and the search continues one
// character later. REQUIRES: valid UTF-8, not empty.
void match_regex(std::string_view text, RegexMatch& regex, std::vector<Match>& matches) {
  size_t copied = 0, from = 0;
  bool has_last = false;
  while (from <= text.size()) {
    const auto found = regex.find_also_empty(text, from);
    if (!found) break;
    if (found->begin == found->end && has_last && found->end == copied) {
      from += from < text.size() ? decode_utf8(text, from).length_bytes : 1;
      continue;
    }
    if (found->begin > copied) matches.push_back({copied, found->begin, false});
    matches.push_back({found->begin, found->end, true});
    from = copied = found->end;
    has_last = true;
  }
  if (copied < text.size()) matches.push_back({copied, text.size(), false});
}

// Makes pieces of matches, which begin at `offset` in the text.
void append_pieces(std::vector<Match>& matches, Behavior behavior, size_t offset,
                   std::vector<PieceRange>& pieces) {
  const size_t first = pieces.size();
  const bool is_backward = behavior == Behavior::kMergedWithNext;
  if (is_backward) std::reverse(matches.begin(), matches.end());
  bool was_match = false;
  for (const Match& match : matches) {
    const bool has_piece = pieces.size() > first;
    const bool joins = behavior == Behavior::kContiguous ? match.is_match == was_match
                       : is_backward || behavior == Behavior::kMergedWithPrevious
                           ? match.is_match && !was_match
                           : false;
    was_match = match.is_match;
    if (behavior == Behavior::kRemoved && match.is_match) continue;
    if (!joins || !has_piece) {
      pieces.push_back({offset + match.begin, offset + match.end});
    } else if (is_backward) {
      pieces.back().begin = offset + match.begin;
    } else {
      pieces.back().end = offset + match.end;
    }
  }
  const auto begin = pieces.begin() + static_cast<std::ptrdiff_t>(first);
  if (is_backward) std::reverse(begin, pieces.end());
  pieces.erase(std::remove_if(begin, pieces.end(), [](PieceRange piece) { return piece.begin == piece.end; }),
               pieces.end());
}

// Copies the pieces into a new text, with `prefix` before those that need it, and each space replaced by
// `space`.
template <typename NeedsPrefix>
void rewrite(SplitText& split, std::string_view prefix, std::string_view space, NeedsPrefix&& needs_prefix) {
  std::string text;
  text.reserve(split.text.size() + split.text.size() / 2 + prefix.size());
  for (PieceRange& piece : split.pieces) {
    const std::string_view before = split.text.substr(piece.begin, piece.end - piece.begin);
    const size_t begin = text.size();
    if (needs_prefix(before, piece)) text += prefix;
    for (const char c : before) {
      if (c == ' ')
        text += space;
      else
        text.push_back(c);
    }
    piece = {begin, text.size()};
  }
  split.storage = std::move(text);
  split.text = split.storage;
}

// Copies the pieces into a new text, each as `spell` spells it.
template <typename Spell>
void replace_pieces(SplitText& split, Spell&& spell) {
  std::string text;
  for (PieceRange& piece : split.pieces) {
    const size_t begin = text.size();
    text += spell(split.text.substr(piece.begin, piece.end - piece.begin));
    piece = {begin, text.size()};
  }
  split.storage = std::move(text);
  split.text = split.storage;
}

}  // namespace

struct PreTokenizerChain::Step {
  explicit Step(const PreTokenizerStep& step) : options(step) {
    if (step.type == PreType::kWhitespace) regex = std::make_shared<const Regex>(kWhitespaceExpression);
    if (step.type == PreType::kByteLevel && step.splits) scanner.emplace("gpt2");
    if (step.type != PreType::kSplit || !step.is_regex) return;
    if (is_isolated() && !Pretokenizer::name_of(step.pattern).empty())
      scanner.emplace(step.pattern);
    else
      regex = Regex::from_oniguruma(step.pattern);
  }

  bool is_isolated() const { return options.behavior == Behavior::kIsolated && !options.inverts; }

  void find(std::string_view text, RegexMatch* match, std::vector<Match>& matches) const {
    matches.clear();
    if (options.type == PreType::kDigits) return match_characters(text, is_number, matches);
    if (options.type == PreType::kPunctuation) return match_characters(text, is_punctuation, matches);
    if (options.type == PreType::kWhitespaceSplit) return match_characters(text, is_white_space, matches);
    if (options.type == PreType::kMetaspace) return match_string(text, options.marker, matches);
    if (!match) return match_string(text, options.pattern, matches);
    match_regex(text, *match, matches);
  }

  Behavior behavior() const {
    if (options.type == PreType::kDigits)
      return options.isolates_digits ? Behavior::kIsolated : Behavior::kContiguous;
    if (options.type == PreType::kWhitespaceSplit || options.type == PreType::kWhitespace)
      return Behavior::kRemoved;
    return options.type == PreType::kMetaspace ? Behavior::kMergedWithNext : options.behavior;
  }

  void apply(SplitText& split, bool is_text_begin) const;
  void apply_scanner(SplitText& split) const;
  void apply_matches(SplitText& split) const;

  PreTokenizerStep options;
  std::optional<Pretokenizer> scanner;
  std::shared_ptr<const Regex> regex;
};

void PreTokenizerChain::Step::apply(SplitText& split, bool is_text_begin) const {
  if (options.type == PreType::kMetaspace) {
    rewrite(split, options.marker, options.marker, [&](std::string_view text, PieceRange piece) {
      const bool is_wanted = options.prepend == PrependScheme::kAlways ||
                             (options.prepend == PrependScheme::kFirst && is_text_begin && piece.begin == 0);
      return is_wanted && !text.starts_with(options.marker) && !text.starts_with(' ');
    });
    if (!options.splits) return;
  }
  if (options.type == PreType::kByteLevel && options.prepend == PrependScheme::kAlways)
    rewrite(split, " ", " ", [](std::string_view text, PieceRange) { return !text.starts_with(' '); });
  if (scanner) return apply_scanner(split);
  if (options.type != PreType::kByteLevel) apply_matches(split);
}

void PreTokenizerChain::Step::apply_scanner(SplitText& split) const {
  std::vector<PieceRange> pieces;
  pieces.reserve(split.text.size() / 4 + 1);
  std::array<size_t, 256> ends;
  for (const PieceRange& piece : split.pieces) {
    const std::string_view text = split.text.substr(piece.begin, piece.end - piece.begin);
    PieceReader reader(*scanner, text, 0, text.size());
    size_t begin = piece.begin;
    while (const size_t count = reader.next(ends))
      for (size_t i = 0; i < count; ++i) {
        pieces.push_back({begin, piece.begin + ends[i]});
        begin = piece.begin + ends[i];
      }
  }
  split.pieces = std::move(pieces);
}

void PreTokenizerChain::Step::apply_matches(SplitText& split) const {
  std::vector<PieceRange> pieces;
  std::vector<Match> matches;
  std::optional<RegexMatch> match;
  if (regex) match.emplace(*regex);
  const bool inverts = options.inverts || options.type == PreType::kWhitespace;
  const auto add = [&](size_t begin, size_t end) {
    find(split.text.substr(begin, end - begin), match ? &*match : nullptr, matches);
    if (inverts)
      for (Match& found : matches) found.is_match = !found.is_match;
    append_pieces(matches, behavior(), begin, pieces);
  };
  for (const PieceRange& piece : split.pieces) {
    if (!match) {
      add(piece.begin, piece.end);
      continue;
    }
    const std::string_view text = split.text.substr(0, piece.end);
    for (size_t i = piece.begin; i < piece.end;) {
      const size_t valid_end = valid_utf8_end(text, i);
      if (valid_end > i) add(i, valid_end);
      size_t end = valid_end;
      while (end < piece.end && !decode_utf8(text, end).is_valid()) ++end;
      if (end > valid_end) pieces.push_back({valid_end, end});
      i = end;
    }
  }
  split.pieces = std::move(pieces);
}

PreTokenizerChain::PreTokenizerChain(const std::vector<PreTokenizerStep>& steps) {
  for (const PreTokenizerStep& step : steps) steps_.emplace_back(step);
}
PreTokenizerChain::~PreTokenizerChain() = default;
PreTokenizerChain::PreTokenizerChain(PreTokenizerChain&&) noexcept = default;

void PreTokenizerChain::split(std::string_view text, bool is_text_begin, SplitText& out) const {
  out.text = text;
  out.pieces.clear();
  if (!text.empty()) out.pieces.push_back({0, text.size()});
  bool is_spelled = false;
  for (const Step& step : steps_) {
    step.apply(out, is_text_begin);
    if (step.options.type != PreType::kByteLevel || &step == &steps_.back()) continue;
    replace_pieces(out, [](std::string_view piece) { return bytes_to_chars(piece); });
    is_spelled = true;
  }
  if (is_spelled)
    replace_pieces(out,
                   [](std::string_view piece) { return chars_to_bytes(piece).value_or(std::string(piece)); });
}

bool PreTokenizerChain::splits_at_spaces() const {
  bool has_boundary = false, is_spelled = false;
  for (const Step& step : steps_) {
    const PreTokenizerStep& options = step.options;
    const bool was_spelled = is_spelled;  // a space is another character behind ByteLevel
    is_spelled |= options.type == PreType::kByteLevel;
    const bool is_plain_split = options.type == PreType::kSplit && options.is_regex && step.is_isolated();
    if (!was_spelled &&
        (step.scanner || options.type == PreType::kWhitespace || options.type == PreType::kWhitespaceSplit ||
         (options.type == PreType::kMetaspace && options.splits) ||
         (is_plain_split && contains(kSplitAtSpaces, options.pattern)))) {
      has_boundary = true;
      continue;
    }
    const bool has_no_spaces =
        options.type == PreType::kDigits || options.type == PreType::kByteLevel ||
        (options.type == PreType::kPunctuation && options.behavior == Behavior::kIsolated) ||
        (is_plain_split &&
         std::find(kWithoutSpaces.begin(), kWithoutSpaces.end(), options.pattern) != kWithoutSpaces.end());
    if (!has_no_spaces) return false;
  }
  return has_boundary;
}

bool PreTokenizerChain::only_marks(std::string_view marker) const {
  return std::all_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    const PreTokenizerStep& options = step.options;
    if (options.type == PreType::kMetaspace) return options.marker == marker;
    return options.type == PreType::kSplit && !options.is_regex && options.pattern == " " && !options.inverts;
  });
}

}  // namespace ingot
