#include "ingot/formats/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {
using ::testing::HasSubstr;
using namespace std::string_literals;

std::string parse(const std::string& line, const std::string& field = "text") {
  return parse_jsonl_line(line, field, "corpus.jsonl", 7);
}

void expect_refused(const std::string& line, const std::string& why, const std::string& field = "text") {
  const std::string message = data_error([&] { parse(line, field); });
  EXPECT_THAT(message, ::testing::AllOf(::testing::StartsWith("corpus.jsonl:7: "), HasSubstr(why)))
      << line.substr(0, 80);
  EXPECT_LT(message.size(), 400u) << "the line itself does not belong into the message";
}

TEST(JsonlLine, ReturnsTheField) {
  EXPECT_EQ(parse(R"({"text": "hello"})"), "hello");
  EXPECT_EQ(parse(R"(  {"id": 3, "meta": {"text": "inner", "a": [1, {"text": 2}]}, "text": ""}  )"), "");
  EXPECT_EQ(parse(R"({"meta": [{"text": "inner"}], "body": "b", "text": 1})", "body"), "b");
  EXPECT_EQ(parse("{\"text\": \"a\"}\r"), "a");
}

TEST(JsonlLine, UndoesEscapes) {
  EXPECT_EQ(parse(R"({"text": "\"\\\/\b\f\n\r\t"})"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(parse(R"({"text": "\u00e9\u20AC\ud83d\ude00"})"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(parse("{\"text\": \"\xf0\x9f\x98\x80\"}"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(parse(R"({"te\u0078t": "key too"})"), "key too");
}

TEST(JsonlLine, RefusesBadText) {
  expect_refused(R"({"text": "\ud83d"})", "surrogate");
  expect_refused(R"({"text": "\ude00"})", "surrogate");
  expect_refused(R"({"text": "\ud83d\u0041"})", "surrogate");
  expect_refused(R"({"text": "\x41"})", "forbidden character after backslash");
  expect_refused(R"({"text": "\u12"})", "4 hex digits");
  expect_refused("{\"text\": \"\xff\"}", "ill-formed UTF-8");
  expect_refused("{\"text\": \"\xc3\"}", "ill-formed UTF-8");
  expect_refused("{\"text\": \"\xc0\xaf\"}", "ill-formed UTF-8");
  expect_refused("{\"text\": \"\xed\xa0\x80\"}", "ill-formed UTF-8");
  expect_refused("{\"text\": \"a\0b\"}"s, "U+0000");
  expect_refused(R"({"text": "a\u0000b"})", "NUL (\\u0000) at offset 1 of the field");
  expect_refused("{\"text\": \"a\tb\"}", "must be escaped");
}

TEST(JsonlLine, RefusesBadStructure) {
  expect_refused(R"({"text": "a")", "column");
  expect_refused(R"({"text": "a)", "column");
  expect_refused(R"({"text": "a"} {"text": "b"})", "column");
  expect_refused(R"({"text": "a",})", "column");
  expect_refused("hello", "column");
  expect_refused(R"("text")", "holds a string, expected an object");
  expect_refused(R"(["text"])", "holds an array, expected an object");
  expect_refused("12", "holds a number, expected an object");
  expect_refused(R"({"body": "a"})", "has no field \"text\"");
  expect_refused(R"({"a": {"text": "inner"}})", "has no field \"text\"");
  expect_refused(R"({"text": null})", "is null, expected a string");
  expect_refused(R"({"text": ["a"]})", "is an array, expected a string");
  expect_refused(R"({"text": {"text": "a"}})", "is an object, expected a string");
  expect_refused(R"({"text": "a", "text": "b"})", "twice");
}

TEST(JsonlLine, NestingIsBounded) {
  const auto nested = [](size_t depth) {
    return "{\"a\": " + std::string(depth, '[') + std::string(depth, ']') + ", \"text\": \"x\"}";
  };
  EXPECT_EQ(parse(nested(kMaxJsonlDepth - 1)), "x");
  expect_refused(nested(kMaxJsonlDepth), "nested deeper than 64");
  expect_refused("{\"a\": " + std::string(1'000'000, '['), "nested deeper than 64");
}

TEST(JsonlLine, LongLinesAreReadAndNotQuotedInErrors) {
  const std::string body(3'000'000, 'x');
  EXPECT_EQ(parse("{\"text\": \"" + body + "\"}"), body);
  expect_refused("{\"text\": \"" + body + "\x01\"}", "column 3000011");
}

class JsonlFile : public FolderTest {
 protected:
  std::vector<std::string> read(const std::string& content) {
    JsonlReader reader(write("corpus.jsonl", content));
    std::vector<std::string> documents;
    for (std::string text; reader.next(text);) documents.push_back(text);
    return documents;
  }
};

TEST_F(JsonlFile, ReadsLineByLine) {
  using Documents = std::vector<std::string>;
  EXPECT_EQ(read(""), Documents{});
  EXPECT_EQ(read("\n\n"), Documents{});
  EXPECT_EQ(read("{\"text\":\"a\"}\n{\"text\":\"b\"}\n"), (Documents{"a", "b"}));
  EXPECT_EQ(read("\xef\xbb\xbf{\"text\":\"a\"}\r\n \t\r\n\r\n{\"text\":\"b\"}"), (Documents{"a", "b"}));
}

TEST_F(JsonlFile, ErrorsNameFileAndLine) {
  EXPECT_THAT(data_error([&] { read("{\"text\":\"a\"}\n\n{\"text\":\"b\"\n"); }),
              HasSubstr(path("corpus.jsonl") + ":3: "));
  EXPECT_THAT(data_error([&] { JsonlReader reader(path("none.jsonl")); }), HasSubstr("No such file"));
}

}  // namespace
}  // namespace ingot::test
