#include "ingot/data/tokenizer/oniguruma.h"

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace {

constexpr std::string_view kWordClasses = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class OnigurumaTranslation {
 public:
  explicit OnigurumaTranslation(std::string_view expression) : text_(expression) {}

  std::string make() {
    out_ = "(?m)";
    while (i_ < text_.size()) {
      const char c = text_[i_];
      if (c == '\\') {
        escape();
      } else if (set_begin_ != kNoSet) {
        in_set(c);
      } else {
        outside(c);
      }
    }
    return out_;
  }

 private:
  static constexpr size_t kNoSet = ~size_t{0};

  [[noreturn]] void refuse(std::string_view what, std::string_view fix) const {
    fail(ErrorKind::kData, "pattern '{}': {} at byte {}; {}", shown_pattern(text_), what, i_, fix);
  }
  bool is_at(std::string_view word) const { return text_.substr(i_).starts_with(word); }
  void copy(size_t bytes) {
    out_ += text_.substr(i_, bytes);
    i_ += bytes;
  }

  void escape() {
    if (i_ + 1 == text_.size()) refuse("a lone backslash", "remove it");
    const char c = text_[i_ + 1];
    const bool is_in_set = set_begin_ != kNoSet;
    std::string_view by;
    if (c == 's') by = R"(\p{White_Space})";
    if (c == 'S') by = R"(\P{White_Space})";
    if (c == 'h') by = is_in_set ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
    if (c == 'H' && !is_in_set) by = "[^0-9A-Fa-f]";
    if (c == 'H' && is_in_set) refuse("\\H in a set", "write the set another way");
    if (c == 'W' && is_in_set) refuse("\\W in a set", "write the set another way");
    if (!by.empty()) {
      out_ += by;
    } else if (c == 'w' || c == 'W') {
      if (!is_in_set) out_ += c == 'w' ? "[" : "[^";
      out_ += kWordClasses;
      if (!is_in_set) out_ += "]";
    } else if (c == 'u') {
      const std::string_view digits = text_.substr(i_ + 2, 4);
      if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos)
        refuse("\\u without four hexadecimal digits", "write \\uXXXX");
      out_.append("\\x{").append(digits).append("}");
      i_ += 4;
    } else {
      out_ += text_.substr(i_, 2);
    }
    i_ += 2;
  }

  void in_set(char c) {
    const size_t position = i_ - set_begin_;
    if (c == ']' && position > 0) {
      set_begin_ = kNoSet;
    } else if (c == '[' && is_at("[:")) {
      const size_t end = text_.find(":]", i_);
      if (end == text_.npos) refuse("[: without :]", "write \\[ for the character");
      return copy(end + 2 - i_);
    } else if (c == '[') {
      refuse("a set inside a set", "write one set, or \\[ for the character");
    } else if (is_at("&&")) {
      refuse("an intersection of sets (&&)", "write the set another way");
    }
    copy(1);
  }

  void outside(char c) {
    if (c == '[') {
      copy(is_at("[^") ? 2 : 1);
      set_begin_ = i_;
      return;
    }
    copy(1);
    if (c == '}' && is_at("+") && is_interval())
      refuse("a + after an interval, which engines understand in two ways,",
             "write (?>X{n,m}) or (?:X{n,m})+");
  }

  // Returns true if the text before i_ ends in {n}, {n,} or {n,m}.
  bool is_interval() const {
    const size_t open = text_.substr(0, i_).rfind('{');
    if (open == text_.npos) return false;
    const std::string_view inside = text_.substr(open + 1, i_ - open - 2);
    return !inside.empty() && inside.find_first_not_of("0123456789,") == inside.npos;
  }

  std::string_view text_;
  std::string out_;
  size_t i_ = 0;
  size_t set_begin_ = kNoSet;  // offset behind [ or [^ of the open set
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view expression) {
  return OnigurumaTranslation(expression).make();
}

std::string shown_pattern(std::string_view expression) {
  constexpr size_t kMaxBytes = 200;
  if (expression.size() <= kMaxBytes) return std::string(expression);
  return std::string(expression.substr(0, valid_utf8_end(expression.substr(0, kMaxBytes), 0))) + "...";
}

}  // namespace ingot
