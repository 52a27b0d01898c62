#include "ingot/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/unicode.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {
namespace fs = std::filesystem;
using ::testing::ElementsAre;
using namespace std::string_literals;

class Corpus : public FolderTest {
 protected:
  static Documents load(const std::vector<std::string>& specs, const std::string& field = "text") {
    return load_documents(specs, field);
  }
  static std::vector<std::string> texts(const Documents& documents) {
    std::vector<std::string> all;
    for (const Document& document : documents) all.emplace_back(document.text);
    return all;
  }
};

TEST_F(Corpus, ReadsFilesFoldersPatternsAndJsonLinesInOrder) {
  write("texts/b.txt", "bee");
  write("texts/a.txt", "ay");
  write("texts/below/c.txt", "sea");
  write("texts/.hidden", "never");
  write("texts/.git/x.txt", "never");
  const std::string lines = write("d.jsonl", "{\"text\":\"one\"}\n\n{\"text\":\"\"}\n{\"text\":\"two\"}\n");
  const Documents all = load({lines, (folder_ / "texts").string(), write("e.txt", "e")});
  EXPECT_THAT(texts(all), ElementsAre("one", "two", "ay", "bee", "sea", "e"));
  EXPECT_EQ(all[1].name, lines + ":4");
  EXPECT_EQ(all[2].name, (folder_ / "texts/a.txt").string());
  EXPECT_EQ(all.size_bytes(), 15);
  EXPECT_THAT(texts(load({(folder_ / "texts/?.txt").string()})), ElementsAre("ay", "bee"));
  EXPECT_THAT(texts(load({(folder_ / "*").string()})), ElementsAre("one", "two", "e", "ay", "bee", "sea"));
  EXPECT_THAT(texts(load({write("f.ndjson", "{\"body\":\"x\"}")}, "body")), ElementsAre("x"));
  EXPECT_THAT(texts(load({write("odd [name].txt", "odd")})), ElementsAre("odd"));
}

// A text file kept the mark, which a field of JSON Lines may also begin with.
TEST_F(Corpus, ByteOrderMarksAreNoPartOfATextAndLineEndsAre) {
  const std::string mark = "\xef\xbb\xbf", text = "one\r\ntwo" + mark + "\n";
  const Documents plain = load({write("plain.txt", mark + text)});
  const Documents lines =
      load({write("lines.jsonl", mark + "{\"text\":\"\\ufeffone\\r\\ntwo\\ufeff\\n\"}\r\n")});
  ASSERT_EQ(plain.size(), 1u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(plain[0].text, text);
  EXPECT_EQ(lines[0].text, text);
}

TEST_F(Corpus, BadFilesGiveOneClearErrorEach) {
  const auto refused = [&](const std::string& path, const std::vector<std::string>& parts) {
    std::vector<std::string> all = parts;
    all.push_back(path);
    expect_error(
        ErrorKind::kData, [&] { load({path}); }, all);
  };
  refused((folder_ / "absent.txt").string(), {"does not exist", "builtin:cpp-headers"});
  refused((folder_ / "*.none").string(), {"no file matches"});
  refused(write("empty.txt", ""), {"is empty"});
  refused(write("empty.jsonl", "\n\n"), {"holds no text"});
  refused(write("binary.txt", "abc\0def"s), {"does not look like text", "NUL byte at offset 3"});
  refused(write("nul.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\\u0000\"}\n"),
          {"nul.jsonl:2", "does not look like text", "NUL"});
  refused(write("mark.txt", "\xef\xbb\xbf"), {"is empty"});
  refused(write("little.txt", "\xff\xfeh\0i\0"s), {"UTF-16", "iconv -f UTF-16 -t UTF-8"});
  refused(write("little.jsonl", "\xff\xfe{\0"s), {"UTF-16", "iconv -f UTF-16 -t UTF-8"});
  refused(write("no_mark.txt", "h\0i\0\n\0"s), {"UTF-16", "iconv -f UTF-16LE -t UTF-8"});
  refused(write("big.txt", "\0h\0i\0\n"s), {"UTF-16", "iconv -f UTF-16BE -t UTF-8"});
  refused(write("latin1.txt", "one\ncaf\xe9 two\n"),
          {"latin1.txt:2: is not UTF-8", "0xe9", "offset 7", "iconv"});
  refused(write("cut.txt", "caf\xc3"), {"offset 3"});
  refused(write("text.gz", "\x1f\x8b\x08\0\0"s), {"text.gz", "cut off at byte 5 of 5"});
  refused(write("shard.bin", "x"), {"token shard", "train_*.bin"});
  fs::create_directories(folder_ / "nothing");
  refused((folder_ / "nothing").string(), {"holds no files"});
  expect_error(ErrorKind::kData, [&] { load({write("bad.jsonl", "{\"text\":\"a\"}\n{\"text\":\n")}); },
               {"bad.jsonl:2: "});
  expect_error(ErrorKind::kData, [&] { load({}); }, {"no text was given"});
  expect_error(ErrorKind::kUsage, [&] { load({"builtin:poems"}); }, {"builtin:poems", "builtin:cpp-headers"});
}

TEST_F(Corpus, UnreadableFileIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root can read everything";
  const std::string path = write("secret.txt", "x");
  fs::permissions(path, fs::perms::none);
  expect_error(ErrorKind::kData, [&] { load({path}); }, {path, "Permission denied"});
}

TEST_F(Corpus, SplitsOneTextByCharactersAsNanoGptDoes) {
  // nanoGPT: n = len(data); train = data[:int(n*0.9)]; val = data[int(n*0.9):]
  std::string text;
  for (int i = 0; i < 7; ++i) text += "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";  // 4 characters, 10 bytes
  const DocumentSplit parts = split(load({write("t.txt", text)}), 0.1);  // 25 = int(28 * 0.9) characters
  EXPECT_THAT(texts(parts.train), ElementsAre(text.substr(0, 62)));
  EXPECT_THAT(texts(parts.val), ElementsAre(text.substr(62)));
  const struct {
    size_t characters;
    double fraction;
    size_t train;
  } cases[] = {{1115394, 0.1, 1003854}, {10, 0.1, 9}, {1, 0.1, 0}, {7, 0.5, 3}, {1000, 0.0005, 999}};
  for (const auto& c : cases) {
    Documents one;
    one.add("x", std::string(c.characters, 'a'));
    const DocumentSplit s = split(one, c.fraction);
    EXPECT_EQ(s.train[0].text.size(), c.train) << c.characters;
    EXPECT_EQ(s.val[0].text.size(), c.characters - c.train);
  }
}

TEST_F(Corpus, SplitsManyTextsByDocumentsFromTheEnd) {
  const auto cut = [](const std::vector<size_t>& sizes, double fraction) {
    Documents documents;
    for (const size_t size_bytes : sizes) documents.add("x", std::string(size_bytes, 'a'));
    const DocumentSplit parts = split(documents, fraction);
    EXPECT_EQ(parts.train.size() + parts.val.size(), sizes.size());
    return parts.train.size();
  };
  EXPECT_EQ(cut({10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, 0.1), 9u);
  EXPECT_EQ(cut({10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, 0.26), 7u);
  EXPECT_EQ(cut({1, 1000}, 0.1), 1u);
  EXPECT_EQ(cut({1000, 1}, 0.9), 1u);
  EXPECT_EQ(cut({10, 50, 6, 4, 30}, 0.35), 3u);  // validation takes 34 of at most 35 bytes
  Documents two;
  two.add("a", "x");
  two.add("b", "y");
  const DocumentSplit none = split(two, 0);
  EXPECT_EQ(none.train.size(), 2u);
  EXPECT_TRUE(none.val.empty());
  expect_error(ErrorKind::kUsage, [&] { split(two, 1); }, {"validation fraction", "got 1"});
  expect_error(ErrorKind::kUsage, [&] { split(two, -0.1); }, {"got -0.1"});
}

TEST_F(Corpus, SplitsOutliveTheWhole) {
  DocumentSplit parts;
  {
    const Documents whole = load({write("t.txt", std::string(100'000, 'q'))});
    parts = split(whole, 0.5);
  }
  EXPECT_EQ(parts.train[0].text, std::string(50'000, 'q'));
  EXPECT_EQ(parts.val[0].text, std::string(50'000, 'q'));
}

TEST_F(Corpus, HashDependsOnTextsAndBoundaries) {
  const auto hash = [](const std::vector<std::string>& all) {
    Documents documents;
    for (const std::string& text : all) documents.add("name", text);
    return documents.content_hash();
  };
  EXPECT_EQ(hash({"ab", "c"}), hash({"ab", "c"}));
  EXPECT_NE(hash({"ab", "c"}), hash({"a", "bc"}));
  EXPECT_NE(hash({"ab", "c"}), hash({"c", "ab"}));
  EXPECT_NE(hash({"ab"}), hash({"ac"}));
}

// A reference from the definition in RFC 3629: it decodes and then rejects everything that is not the
// shortest encoding of a Unicode scalar value.
bool is_valid_reference(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto b = static_cast<uint8_t>(text[i]);
    const size_t n = b < 0x80 ? 1 : (b >> 5) == 6 ? 2 : (b >> 4) == 14 ? 3 : (b >> 3) == 30 ? 4 : 0;
    if (n == 0 || i + n > text.size()) return false;
    uint32_t c = n == 1 ? b : b & (0x7fu >> n);
    for (size_t k = 1; k < n; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if ((next >> 6) != 2) return false;
      c = c << 6 | (next & 63u);
    }
    const size_t shortest = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n != shortest || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return false;
    i += n;
  }
  return true;
}

TEST(Utf8, EverySequenceOfThreeBytesIsJudgedAsTheStandardSays) {
  std::string text(3, '\0');
  for (uint32_t i = 0; i < 1u << 24; i += 1) {
    text[0] = static_cast<char>(i >> 16);
    text[1] = static_cast<char>(i >> 8);
    text[2] = static_cast<char>(i);
    if (text[0] > 0) i |= 0xfff;  // after an ASCII byte the test takes a sample
    ASSERT_EQ(valid_utf8_end(text, 0) == text.size(), is_valid_reference(text)) << std::hex << i;
  }
  for (uint32_t second = 0; second < 256; ++second)
    for (const char first : {'\xf0', '\xf1', '\xf4', '\xf5'})
      for (const char third : {'\x80', '\xbf', '\x7f', '\xc0'}) {
        const std::string four = {first, static_cast<char>(second), third, '\x80'};
        ASSERT_EQ(valid_utf8_end(four, 0) == 4, is_valid_reference(four)) << second;
      }
}

TEST(Utf8, FindsThePlaceOfTheFirstInvalidByte) {
  for (size_t at = 0; at < 40; ++at) {
    std::string text(40, 'a');
    text[at] = '\xff';
    EXPECT_EQ(valid_utf8_end(text, 0), at);
    text.replace(at, 1, "\xe2\x82");  // the next byte cuts the sequence off
    EXPECT_EQ(valid_utf8_end(text, 0), at);
  }
}

}  // namespace
}  // namespace ingot::test
