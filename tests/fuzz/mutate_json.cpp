#include "tests/fuzz/mutate_json.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace ingot {
namespace {

enum class Kind { kString, kNumber, kWord, kOpen, kClose, kComma };

struct Token {
  Kind kind;
  size_t begin, end;
  int depth;  // number of brackets around it
};

constexpr std::array<std::string_view, 22> kNumbers = {"0",
                                                       "-0",
                                                       "-1",
                                                       "1",
                                                       "2",
                                                       "127",
                                                       "255",
                                                       "256",
                                                       "65536",
                                                       "2147483647",
                                                       "2147483648",
                                                       "4294967296",
                                                       "9007199254740993",
                                                       "9223372036854775807",
                                                       "9223372036854775808",
                                                       "18446744073709551615",
                                                       "-9223372036854775808",
                                                       "1e308",
                                                       "1e999",
                                                       "-1e999",
                                                       "1e-400",
                                                       "0.1"};
constexpr std::array<std::string_view, 14> kValues = {"null", "true",      "false",       "[]",      "{}",
                                                      "\"\"", "[[]]",      "{\"\":null}", "\"1\"",   "[0,-1]",
                                                      "0.5",  "[1,2,3,4]", "NaN",         "Infinity"};
constexpr std::array<std::string_view, 14> kStrings = {
    R"("\u0000")",   R"("\ud800")", R"("\ud83d\ude00")", R"("\u001b[31m")", R"("../x")",
    R"("/")",        R"("a\/b")",   R"("F32")",          R"("BF16")",       R"("__metadata__")",
    R"("<script>")", R"("\"\\")",   "\"\xff\xfe\"",      "\"\xc0\x80\""};

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  int depth = 0;
  constexpr std::string_view kLetters = "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char c = text[i++];
    if (c == '"') {
      while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
      i = std::min(i + 1, text.size());
      tokens.push_back({Kind::kString, begin, i, depth});
    } else if (c == '{' || c == '[') {
      tokens.push_back({Kind::kOpen, begin, i, depth++});
    } else if (c == '}' || c == ']') {
      tokens.push_back({Kind::kClose, begin, i, --depth});
    } else if (c == ',') {
      tokens.push_back({Kind::kComma, begin, i, depth});
    } else if (kLetters.find(c) != kLetters.npos) {
      i = std::min(text.find_first_not_of(kLetters, i), text.size());
      const bool is_number = c == '-' || (c >= '0' && c <= '9');
      tokens.push_back({is_number ? Kind::kNumber : Kind::kWord, begin, i, depth});
    }
  }
  return tokens;
}

struct Range {
  size_t begin, end;
};

// Returns the value or member that begins at a token: up to the next comma or bracket of its own depth.
Range value_at(const std::vector<Token>& tokens, size_t at) {
  const Token& first = tokens[at];
  size_t i = at;
  while (i + 1 < tokens.size()) {
    const Token& next = tokens[i + 1];
    if (next.depth < first.depth || (next.depth == first.depth && next.kind == Kind::kComma)) break;
    ++i;
  }
  return {first.begin, tokens[i].end};
}

class Mutation {
 public:
  Mutation(const std::string& text, std::minstd_rand& random)
      : text_(text), random_(random), tokens_(tokens_of(text)) {}

  std::string make() {
    if (tokens_.empty()) return text_;
    switch (below(8)) {
      case 0:
        return replaced(scalar(Kind::kNumber), pick(kNumbers));
      case 1:
        return replaced(scalar(Kind::kString), pick(kStrings));
      case 2:
        return replaced(value(), pick(kValues));
      case 3:
        return nested();
      case 4:
        return repeated();
      case 5:
        return removed();
      case 6:
        return replaced(value(), text_of(value()));
      default:
        return replaced(scalar(Kind::kString), text_of(scalar(Kind::kString)));
    }
  }

 private:
  size_t below(size_t bound) { return random_() % bound; }
  template <size_t n>
  std::string pick(const std::array<std::string_view, n>& list) {
    return std::string(list[below(n)]);
  }
  Range value() { return value_at(tokens_, below(tokens_.size())); }
  // Returns a token of the kind, or another one if none is met soon.
  Range scalar(Kind kind) {
    for (int tries = 0; tries < 20; ++tries)
      if (const Token& token = tokens_[below(tokens_.size())]; token.kind == kind)
        return {token.begin, token.end};
    return value();
  }
  std::string text_of(Range range) const { return text_.substr(range.begin, range.end - range.begin); }
  std::string replaced(Range range, const std::string& by) const {
    return text_.substr(0, range.begin) + by + text_.substr(range.end);
  }
  std::string nested() {
    const Range range = value();
    const size_t depth = below(10) == 0 ? 1000 : 1 + below(4);
    return replaced(range, std::string(depth, '[') + text_of(range) + std::string(depth, ']'));
  }
  std::string repeated() {
    const Range range = value();
    std::string more;
    for (size_t n = 1 + below(3); n > 0; --n) more += text_of(range) + ",";
    return replaced({range.begin, range.begin}, more);
  }
  std::string removed() {
    Range range = value();
    if (range.end < text_.size() && text_[range.end] == ',') ++range.end;
    return replaced(range, "");
  }

  const std::string& text_;
  std::minstd_rand& random_;
  std::vector<Token> tokens_;
};

}  // namespace

std::string mutate_json(const std::string& text, std::minstd_rand& random) {
  return Mutation(text, random).make();
}

}  // namespace ingot
