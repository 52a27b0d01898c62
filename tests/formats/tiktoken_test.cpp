#include "ingot/formats/tiktoken.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string tiktoken_error(const std::string& text) {
  return data_error([&] { read_tiktoken(text, "x.tiktoken"); });
}

TEST(Tiktoken, ReadsTokensByRank) {
  EXPECT_THAT(read_tiktoken("YQ== 0\nYWI= 2\nYWJj 1\n", "x"), ElementsAre("a", "abc", "ab"));
  EXPECT_THAT(read_tiktoken("YQ== 1\r\n\r\n/w== 0", "x"), ElementsAre("\xFF", "a"));
  EXPECT_THAT(read_tiktoken("YQ== 2\n", "x"), ElementsAre("", "", "a"));
}

TEST(Tiktoken, WritesWhatItReads) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"ab", std::string("\0\xFF\x80", 3), "", "abcd"});
  EXPECT_EQ(read_tiktoken(write_tiktoken(tokens), "x"), tokens);
}

TEST(Tiktoken, ErrorsNameTheLine) {
  EXPECT_THAT(tiktoken_error(""), HasSubstr("x.tiktoken: holds no tokens"));
  EXPECT_THAT(tiktoken_error("\n\n"), HasSubstr("holds no tokens"));
  EXPECT_THAT(tiktoken_error("YQ== 0\nYWI 1\n"),
              HasSubstr("x.tiktoken:2: expected 'BASE64 RANK', got 'YWI 1'"));
  for (const char* line :
       {"Y=== 0", "YR== 0", "Y@== 0", "= 0", "YQ==", "YQ==0", " 0", "YWJj=== 0", "\xFF\xFE\n"})
    EXPECT_THAT(tiktoken_error(line), HasSubstr("x.tiktoken:1: expected 'BASE64 RANK'")) << line;
  for (const char* line : {"YQ== ", "YQ== -1", "YQ== 1x", "YQ== 99999999999999999999999", "YQ==  1"})
    EXPECT_THAT(tiktoken_error(line), HasSubstr("x.tiktoken:1: the rank must be a whole number")) << line;
  EXPECT_THAT(tiktoken_error("YQ== 4294967295"), HasSubstr("out of proportion to 1 lines"));
  EXPECT_THAT(tiktoken_error("YQ== 3\nYg== 3\n"), HasSubstr("x.tiktoken:2: rank 3 occurs twice"));
  std::string line;
  for (int i = 0; i < 400; ++i) line += "YWJj";
  EXPECT_THAT(tiktoken_error(line + " 0"), HasSubstr("x.tiktoken:1: a token of 1200 bytes is too long"));
}

}  // namespace
}  // namespace ingot::test
