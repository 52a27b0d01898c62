#include "ingot/data/tokenizer/pretokenize_scanners.h"

#include <array>

#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace {

// A set of CharClass values, as a bit mask.
using ClassSet = uint32_t;
constexpr ClassSet set_of(CharClass c) { return 1u << static_cast<uint32_t>(c); }
constexpr ClassSet kOtherSet = set_of(CharClass::kOther) | set_of(CharClass::kMark);  // [^\s\p{L}\p{N}]
constexpr ClassSet kLetterSet =
    set_of(CharClass::kUpper) | set_of(CharClass::kLower) | set_of(CharClass::kLetter);
constexpr ClassSet kNumberSet = set_of(CharClass::kNumber);
constexpr ClassSet kSpaceSet = set_of(CharClass::kSpace);
// The classes of o200k: [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}].
constexpr ClassSet kUpperSet =
    set_of(CharClass::kUpper) | set_of(CharClass::kLetter) | set_of(CharClass::kMark);
constexpr ClassSet kLowerSet =
    set_of(CharClass::kLower) | set_of(CharClass::kLetter) | set_of(CharClass::kMark);

constexpr std::array<uint8_t, 128> ascii_sets() {
  std::array<uint8_t, 128> sets{};
  for (size_t c = 0; c < 128; ++c) {
    CharClass k = CharClass::kOther;
    if (c >= 'A' && c <= 'Z') k = CharClass::kUpper;
    if (c >= 'a' && c <= 'z') k = CharClass::kLower;
    if (c >= '0' && c <= '9') k = CharClass::kNumber;
    if (c == ' ' || (c >= '\t' && c <= '\r')) k = CharClass::kSpace;
    sets[c] = static_cast<uint8_t>(set_of(k));
  }
  return sets;
}
constexpr std::array<uint8_t, 128> kAsciiSet = ascii_sets();

struct Char {
  ClassSet set = 0;  // one bit, or 0 at the end of the text
  uint32_t length_bytes = 0;
};

// A text, with the matching steps that the patterns have in common.
struct Scanner {
  std::string_view text;

  char byte(size_t i) const { return i < text.size() ? text[i] : '\0'; }

  Char at(size_t i) const {
    if (i >= text.size()) return {};
    const auto b = static_cast<uint8_t>(text[i]);
    if (b < 128) return {kAsciiSet[b], 1};
    const CodePoint c = decode_utf8(text, i);
    return {set_of(c.is_valid() ? char_class(c.value) : CharClass::kOther), c.length_bytes};
  }

  // Returns the end of the run of characters in `set` that starts at i.
  size_t run(size_t i, ClassSet set) const {
    for (Char c = at(i); c.set & set; c = at(i)) i += c.length_bytes;
    return i;
  }

  // Returns the end of [\r\n]* or, with_slash, of [\r\n/]*.
  size_t newlines(size_t i, bool with_slash) const {
    while (byte(i) == '\r' || byte(i) == '\n' || (with_slash && byte(i) == '/')) ++i;
    return i;
  }

  // Returns the end of '(?:[sdmt]|ll|ve|re), or i if it does not match.
  size_t contraction(size_t i) const {
    if (byte(i) != '\'') return i;
    const char a = byte(i + 1), b = byte(i + 2);
    if (a == 's' || a == 'd' || a == 'm' || a == 't') return i + 2;
    const bool is_pair = (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e');
    return is_pair ? i + 3 : i;
  }

  // Does the same for either case; U+017F (long s) counts as an s.
  size_t any_case_contraction(size_t i) const {
    if (byte(i) != '\'') return i;
    const char a = static_cast<char>(byte(i + 1) | 0x20), b = static_cast<char>(byte(i + 2) | 0x20);
    if (a == 's' || a == 'd' || a == 'm' || a == 't') return i + 2;
    if (byte(i + 1) == '\xC5' && byte(i + 2) == '\xBF') return i + 3;
    const bool is_pair = (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e');
    return is_pair ? i + 3 : i;
  }

  struct SpaceRun {
    size_t end;            // end of \s+
    size_t last;           // begin of its last character
    size_t after_newline;  // end of \s*[\r\n], or 0 if the run has no newline
  };
  SpaceRun spaces(size_t i) const {
    SpaceRun run{i, i, 0};
    for (Char c = at(i); c.set & kSpaceSet; c = at(run.end)) {
      run.last = run.end;
      run.end += c.length_bytes;
      if (text[run.last] == '\r' || text[run.last] == '\n') run.after_newline = run.end;
    }
    return run;
  }

  // \s+(?!\S)|\s+ : the whole run at the end of the text, otherwise all but its last character (if it has
  // more than one).
  size_t plain_spaces(const SpaceRun& run, size_t i) const {
    return run.end == text.size() || run.last == i ? run.end : run.last;
  }
};

// '(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s
struct Gpt2 {
  static size_t piece_end(const Scanner& s, size_t i) {
    const size_t contraction = s.contraction(i);
    if (contraction != i) return contraction;
    const size_t j = i + (s.text[i] == ' ' ? 1 : 0);
    const Char c = s.at(j);
    if (c.set & kLetterSet) return s.run(j + c.length_bytes, kLetterSet);
    if (c.set & kNumberSet) return s.run(j + c.length_bytes, kNumberSet);
    if (c.set & kOtherSet) return s.run(j + c.length_bytes, kOtherSet);
    return s.plain_spaces(s.spaces(i), i);
  }
};

// '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|...spaces
// kDigits is the maximum number of digits in a piece. kTakesTail: \s++$ comes before \s*[\r\n].
template <int kDigits, bool kTakesTail>
struct Cl100k {
  static size_t piece_end(const Scanner& s, size_t i) {
    const size_t contraction = s.any_case_contraction(i);
    if (contraction != i) return contraction;
    const Char first = s.at(i);
    if (first.set & kLetterSet) return s.run(i + first.length_bytes, kLetterSet);
    if (first.set & kNumberSet) return digits(s, i);
    size_t j = i + first.length_bytes;
    const Char second = s.at(j);
    if ((second.set & kLetterSet) && s.text[i] != '\r' && s.text[i] != '\n')
      return s.run(j + second.length_bytes, kLetterSet);
    if (s.text[i] == ' ' ? (second.set & kOtherSet) : (first.set & kOtherSet))
      return s.newlines(s.run(j, kOtherSet), false);
    const Scanner::SpaceRun run = s.spaces(i);
    if (kTakesTail && run.end == s.text.size()) return run.end;
    return run.after_newline ? run.after_newline : s.plain_spaces(run, i);
  }

  static size_t digits(const Scanner& s, size_t i) {
    Char c = s.at(i);
    for (int n = 0; n < kDigits && (c.set & kNumberSet); ++n, c = s.at(i)) i += c.length_bytes;
    return i;
  }
};

// [^\r\n\p{L}\p{N}]?U*L+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?U+L*(?i:...)?|\p{N}{1,3}
// | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+  with U = kUpperSet and L = kLowerSet.
struct O200k {
  static size_t piece_end(const Scanner& s, size_t i) {
    const Char first = s.at(i);
    if (first.set & kNumberSet) return Cl100k<3, false>::digits(s, i);
    const bool is_letter = first.set & kLetterSet;
    const bool is_newline = s.text[i] == '\r' || s.text[i] == '\n';
    if (!is_newline) {
      const size_t end = word_end(s, i, is_letter ? i : i + first.length_bytes);
      if (end != i) return s.any_case_contraction(end);
    }
    const size_t j = i + first.length_bytes;
    if (s.text[i] == ' ' ? (s.at(j).set & kOtherSet) : (first.set & kOtherSet))
      return s.newlines(s.run(j, kOtherSet), true);
    const Scanner::SpaceRun run = s.spaces(i);
    return run.after_newline ? run.after_newline : s.plain_spaces(run, i);
  }

  // Returns the end of prefix?U*L+ or else prefix?U+L*; i if neither matches. The word begins at j, after
  // the prefix; j == i if there is no prefix.
  static size_t word_end(const Scanner& s, size_t i, size_t j) {
    size_t upper_end = j, after_both = i;  // after_both: end of the last character in U* that is also in L
    for (Char c = s.at(j); c.set & kUpperSet; c = s.at(upper_end)) {
      upper_end += c.length_bytes;
      if (c.set & kLowerSet) after_both = upper_end;
    }
    const Char next = s.at(upper_end);
    if (next.set & kLowerSet) return s.run(upper_end + next.length_bytes, kLowerSet);
    if (after_both != i) return after_both;  // U* backtracks until L+ matches one character
    // The optional prefix backtracks to nothing: a mark alone also matches as a word.
    if (j != i && (s.at(i).set & kLowerSet)) return j;
    return upper_end != j ? upper_end : i;
  }
};

template <typename Pattern>
size_t scan(std::string_view text, size_t begin, std::span<size_t> ends) {
  const Scanner scanner{text};
  size_t count = 0;
  while (count < ends.size() && begin < text.size()) {
    begin = Pattern::piece_end(scanner, begin);
    ends[count++] = begin;
  }
  return count;
}

}  // namespace

size_t scan_gpt2(std::string_view text, size_t begin, std::span<size_t> ends) {
  return scan<Gpt2>(text, begin, ends);
}
size_t scan_cl100k(std::string_view text, size_t begin, std::span<size_t> ends) {
  return scan<Cl100k<3, true>>(text, begin, ends);
}
size_t scan_o200k(std::string_view text, size_t begin, std::span<size_t> ends) {
  return scan<O200k>(text, begin, ends);
}
size_t scan_llama3(std::string_view text, size_t begin, std::span<size_t> ends) {
  return scan<Cl100k<3, false>>(text, begin, ends);
}
size_t scan_qwen2(std::string_view text, size_t begin, std::span<size_t> ends) {
  return scan<Cl100k<1, false>>(text, begin, ends);
}

bool is_cut(std::string_view text, size_t i) {
  const Scanner scanner{text};
  size_t before = i - 1;  // first byte of the character that ends at i
  while (before > 0 && i - before < 4 && (static_cast<uint8_t>(text[before]) & 0xC0u) == 0x80u) --before;
  const Char previous = scanner.at(before);
  if (before + previous.length_bytes != i) return false;  // not valid UTF-8: no cut here
  if (text[i] == ' ') return !(previous.set & kSpaceSet);
  const ClassSet next = scanner.at(i).set;
  return (previous.set & kLetterSet) && text[i] != '\'' && !(next & (kLetterSet | set_of(CharClass::kMark)));
}

}  // namespace ingot
