#include "ingot/data/tokenizer/pretokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "ingot/data/tokenizer/pretokenize_regex.h"
#include "tests/data/tokenizer_texts.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> pieces(const Pretokenizer& pretokenizer, std::string_view text, size_t begin = 0,
                                size_t end = std::string_view::npos) {
  PieceReader reader(pretokenizer, text, begin, std::min(end, text.size()));
  std::vector<std::string> all;
  std::array<size_t, 7> ends;  // the array is small, so that state must survive between calls
  while (const size_t count = reader.next(ends))
    for (size_t i = 0; i < count; ++i) {
      all.emplace_back(text.substr(begin, ends[i] - begin));
      begin = ends[i];
    }
  return all;
}

std::vector<std::string> pieces(std::string_view pattern, std::string_view text) {
  return pieces(Pretokenizer(pattern), text);
}

class Pattern : public ::testing::TestWithParam<std::string> {
 protected:
  Pretokenizer scanner{GetParam()};
  // The same expression, written so that no scanner recognises it.
  Pretokenizer regex{"(?:" + scanner.expression() + ")"};
};

TEST_P(Pattern, ScannerIsUsedAndPcreIsAnotherImplementation) {
  EXPECT_TRUE(scanner.has_scanner());
  EXPECT_FALSE(regex.has_scanner());
}

TEST_P(Pattern, ScannerEqualsPcreOnRandomStrings) {
  Dice dice(1);
  for (int i = 0; i < 8000; ++i) {
    const std::string text = random_text(dice, pattern_alphabet(), 1 + dice(30));
    ASSERT_EQ(pieces(scanner, text), pieces(regex, text)) << text;
  }
}

// Mixes common characters with a sample of all code points whose class is the same in PCRE2's Unicode
// version and in ours.
TEST_P(Pattern, ScannerEqualsPcreOnAllScripts) {
  const std::vector<const char*> class_expressions = {"^[\\p{Lu}\\p{Lt}]$", "^\\p{Ll}$", "^[\\p{Lm}\\p{Lo}]$",
                                                      "^\\p{M}$",           "^\\p{N}$",  "^\\s$"};
  std::vector<std::unique_ptr<Regex>> regexes;
  std::vector<std::unique_ptr<RegexMatch>> matches;
  for (const char* expression : class_expressions) {
    regexes.push_back(std::make_unique<Regex>(expression));
    matches.push_back(std::make_unique<RegexMatch>(*regexes.back()));
  }
  std::vector<uint32_t> agreed;
  Dice dice(2);
  for (uint32_t c = 1; c <= 0x10FFFF; c += 1 + dice(c < 0x3000 ? 2 : 40)) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    uint32_t pcre_class = 0;
    for (uint32_t k = 0; k < matches.size(); ++k)
      if (matches[k]->find(text, 0)) pcre_class = k + 1;
    if (pcre_class == static_cast<uint32_t>(char_class(c))) agreed.push_back(c);
  }
  EXPECT_GT(agreed.size(), 40000u);
  const std::vector<uint32_t> common = pattern_alphabet();
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int k = 0; k < 12; ++k) text += random_text(dice, dice(2) ? agreed : common, 1);
    ASSERT_EQ(pieces(scanner, text), pieces(regex, text)) << text;
  }
}

TEST_P(Pattern, PiecesCoverAnyBytes) {
  Dice dice(3);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_bytes(dice, 1 + dice(40));
    for (const Pretokenizer* pretokenizer : {&scanner, &regex}) {
      std::string joined;
      for (const std::string& piece : pieces(*pretokenizer, text)) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

TEST_P(Pattern, TextSplitAtCutsHasThePiecesOfTheWhole) {
  Dice dice(4);
  int cut_count = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text =
        dice(4) ? random_text(dice, pattern_alphabet(), 1 + dice(30)) : random_bytes(dice, 1 + dice(30));
    const std::vector<std::string> whole = pieces(scanner, text);
    const size_t cut = scanner.find_cut(text, dice(static_cast<uint32_t>(text.size())));
    if (cut == text.size()) continue;
    ++cut_count;
    std::vector<std::string> parts = pieces(scanner, text, 0, cut);
    for (const std::string& piece : pieces(scanner, text, cut)) parts.push_back(piece);
    ASSERT_EQ(parts, whole) << text << " cut at " << cut;
  }
  EXPECT_GT(cut_count, 4000);
}

INSTANTIATE_TEST_SUITE_P(Published, Pattern, ::testing::Values("gpt2", "cl100k", "o200k", "llama3", "qwen2"),
                         [](const auto& info) { return info.param; });

TEST(Pretokenize, MatchesPublishedExamples) {
  EXPECT_THAT(pieces("gpt2", "I'll  go to 1234 stops!\n"),
              ElementsAre("I", "'ll", " ", " go", " to", " 1234", " stops", "!", "\n"));
  EXPECT_THAT(pieces("cl100k", "I'LL  go-to 1234\n\n  x"),
              ElementsAre("I", "'LL", " ", " go", "-to", " ", "123", "4", "\n\n", " ", " x"));
  EXPECT_THAT(pieces("o200k", "HTTPServer's path/to\n"), ElementsAre("HTTPServer's", " path", "/to", "\n"));
  EXPECT_THAT(pieces("qwen2", "a12"), ElementsAre("a", "1", "2"));
}

TEST(Pretokenize, TrailingSpaceDiffersBetweenCl100kAndLlama3) {
  EXPECT_THAT(pieces("cl100k", "a\n  "), ElementsAre("a", "\n  "));
  EXPECT_THAT(pieces("llama3", "a\n  "), ElementsAre("a", "\n", "  "));
}

TEST(Pretokenize, MongolianVowelSeparatorIsNoSpace) {
  EXPECT_THAT(pieces("gpt2", "a\xE1\xA0\x8E!"), ElementsAre("a", "\xE1\xA0\x8E!"));
}

TEST(Pretokenize, WithoutAPatternTheTextIsOnePiece) {
  EXPECT_THAT(pieces("", "a b\n"), ElementsAre("a b\n"));
  EXPECT_THAT(pieces("", ""), ElementsAre());
}

TEST(Pretokenize, TextThatAnExpressionSkipsIsAPiece) {
  EXPECT_THAT(pieces("[a-z]+", "12ab3c\xFF\xFFx"), ElementsAre("12", "ab", "3", "c", "\xFF\xFF", "x"));
  EXPECT_THAT(pieces("x*", "axxb"), ElementsAre("a", "xx", "b"));  // empty matches are ignored
}

TEST(Pretokenize, RefusesABrokenExpression) {
  EXPECT_THAT(data_error([&] { Pretokenizer("a(b"); }), HasSubstr("missing closing parenthesis at byte 3"));
}

TEST(Pretokenize, GivesUpOnEndlessBacktracking) {
  const std::string text(60, 'a');
  EXPECT_THAT(data_error([&] { pieces("(?:a|aa|a+)+[bc]", text); }), HasSubstr("simplify the pattern"));
}

// The match limit holds for one position of the text, so expressions that backtrack at every position never
// ended.
TEST(LongPretokenize, AnExpressionHasALimitPerText) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::string(30, 'a') + "b ";
  const std::string pattern = "(a|aa)+$|" + std::string(5000, 'x');
  const auto regex = Regex::from_oniguruma(pattern);
  RegexMatch match(*regex);
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = data_error([&] { match.find(text, 0); });
  EXPECT_THAT(error, HasSubstr("for a text of 64000 bytes and is at byte"));
  EXPECT_LT(error.size(), 500u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  const std::string refusal = error_of([] { const Regex bad(std::string(100'000, 'x') + "("); });
  EXPECT_NE(refusal, "no error");
  EXPECT_LT(refusal.size(), 500u);
}

TEST(Pretokenize, AnExpressionIsFoundAtAnyPlace) {
  const auto regex = Regex::from_oniguruma("(?<=b)c\\n+");
  for (const size_t place : {0, 1, 62, 63, 64, 65, 127, 128, 129, 1000}) {
    std::string text;
    while (text.size() < place) text += "\u00e9";
    const size_t begin = text.size() + 1;
    text += "bc\n\n";
    RegexMatch match(*regex);
    const auto found = match.find(text, 0);
    ASSERT_TRUE(found) << place;
    EXPECT_EQ(found->begin, begin);
    EXPECT_EQ(found->end, text.size());
    EXPECT_FALSE(match.find(text, begin + 1));
  }
}

}  // namespace
}  // namespace ingot::test
