#include "ingot/data/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <array>

namespace ingot::test {
namespace {

bool is_surrogate(uint32_t c) { return c >= 0xD800 && c < 0xE000; }

// The counts per class come from the regex engine inside tiktoken 0.14 (Unicode 16.0).
TEST(UnicodeClasses, CountsAreThoseOfUnicode16) {
  std::array<int, 7> count{};
  for (uint32_t c = 0; c <= 0x10FFFF; ++c)
    if (!is_surrogate(c)) ++count[static_cast<size_t>(char_class(c))];
  EXPECT_EQ(count[1], 1858 + 31);     // Lu, Lt
  EXPECT_EQ(count[2], 2258);          // Ll
  EXPECT_EQ(count[3], 404 + 136477);  // Lm, Lo
  EXPECT_EQ(count[4], 2501);          // M
  EXPECT_EQ(count[5], 1911);          // N
  EXPECT_EQ(count[6], 25);            // White_Space
}

TEST(UnicodeClasses, MatchExamples) {
  EXPECT_EQ(char_class(0x180E), CharClass::kOther);  // Mongolian vowel separator, no longer a space
  EXPECT_EQ(char_class(0x85), CharClass::kSpace);
  EXPECT_EQ(char_class(0x200B), CharClass::kOther);
  EXPECT_EQ(char_class(0x01C5), CharClass::kUpper);  // a title-case letter
  EXPECT_EQ(char_class(0x0295), CharClass::kLower);  // it becomes Lo in Unicode 17
  EXPECT_EQ(char_class(0x4E2D), CharClass::kLetter);
  EXPECT_EQ(char_class(0x0301), CharClass::kMark);
  EXPECT_EQ(char_class(0x2167), CharClass::kNumber);
  EXPECT_EQ(char_class(0x10FFFF), CharClass::kOther);
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (is_surrogate(c)) continue;
    std::string text;
    append_utf8(c, text);
    const CodePoint decoded = decode_utf8(text, 0);
    ASSERT_EQ(decoded.value, c);
    ASSERT_EQ(decoded.length_bytes, text.size());
    ASSERT_EQ(valid_utf8_end(text, 0), text.size());
  }
}

TEST(Utf8, InvalidSequencesAreInvalidByteByByte) {
  using namespace std::string_view_literals;
  for (std::string_view bytes :
       {"\x80"sv, "\xBF"sv, "\xC0\x80"sv, "\xC1\xBF"sv, "\xC3"sv, "\xC3("sv, "\xE0\x9F\xBF"sv, "\xE4\xB8"sv,
        "\xE4\xB8("sv, "\xED\xA0\x80"sv, "\xF0\x8F\xBF\xBF"sv, "\xF0\x9F\x91"sv, "\xF4\x90\x80\x80"sv,
        "\xF5\x80\x80\x80"sv, "\xFF"sv}) {
    const CodePoint c = decode_utf8(bytes, 0);
    EXPECT_FALSE(c.is_valid()) << bytes;
    EXPECT_EQ(c.length_bytes, 1u) << bytes;
    EXPECT_EQ(valid_utf8_end(bytes, 0), 0u) << bytes;
  }
  EXPECT_EQ(valid_utf8_end("0123456789abc\xC3", 0), 13u);
}

}  // namespace
}  // namespace ingot::test
