// Text that gzip or zstd has compressed: the same documents and tokens as the plain text. Python's gzip and
// zstandard wrote the files of tests/golden/data/foreign (tools/export_data_golden.py), with several members
// and frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/corpus_reader.h"
#include "ingot/data/corpus_stream.h"
#include "ingot/data/corpus_tokenizer.h"
#include "ingot/data/token_source_text.h"
#include "ingot/formats/compressed.h"
#include "tests/data/all_tokens.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kForeign = fs::path(INGOT_TEST_DATA) / "data/foreign";

// As long_text() in tools/export_data_golden.py.
std::string long_text() {
  std::string lines, text;
  for (int i = 0; i < 40; ++i) lines += fmt::format("{}: naïve café – 東京 😀 the cat sat on the mat.\n", i);
  for (int i = 0; i < 5000; ++i) text += lines;
  return text;
}

// As lines() there, as plain JSON Lines.
std::string json_lines() {
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (int k = 0; k < i % 5; ++k)
      text += fmt::format("Document {} of the café.\\nIt has {} cats. ", i, i * 37 % 11);
    lines += fmt::format("{{\"id\": {}, \"text\": \"{}\"}}\n", i, text);
  }
  return lines;
}

class CompressedText : public FolderTest {
 protected:
  static std::string golden(const std::string& name) { return (kForeign / name).string(); }

  struct Streamed {
    uint64_t hash;
    int64_t documents;
    std::vector<uint32_t> train, val;
    bool operator==(const Streamed&) const = default;
  };
  static Streamed stream(const std::string& file, double val_fraction, const Tokenizer& tokenizer) {
    const StreamedCorpus corpus({file}, val_fraction, "text");
    const StreamedSplit split = tokenize(corpus, tokenizer);
    return {corpus.content_hash(), corpus.documents(), all_tokens(split.train.tokens),
            all_tokens(split.val.tokens)};
  }
};

TEST_F(CompressedText, ALongFileHasTheTokensOfThePlainTextInOnePassAndInTwo) {
  const std::string plain = write("long.txt", long_text());
  ASSERT_GT(fs::file_size(plain), kBatchBytes);
  const StreamedCorpus text({plain}, 0, "text");
  const std::array<const StreamedCorpus*, 1> corpora = {&text};
  const auto bpe = make_corpus_tokenizer("bpe", {.vocab_size = 300}, corpora);
  for (const auto* tokenizer : {bpe.get()})
    for (const double val_fraction : {0.0, 0.1, 0.4}) {
      const Streamed expected = stream(plain, val_fraction, *tokenizer);
      EXPECT_TRUE(stream(golden("long.txt.gz"), val_fraction, *tokenizer) == expected) << val_fraction;
      EXPECT_TRUE(stream(golden("long.txt.zst"), val_fraction, *tokenizer) == expected) << val_fraction;
    }
  // A tokenizer trained on the compressed text is the same.
  const StreamedCorpus packed({golden("long.txt.zst")}, 0, "text");
  const std::array<const StreamedCorpus*, 1> of_packed = {&packed};
  EXPECT_EQ(make_corpus_tokenizer("bpe", {.vocab_size = 300}, of_packed)->to_json(), bpe->to_json());
  EXPECT_EQ(load_documents(std::vector{golden("long.txt.gz")})[0].text, long_text());
}

TEST_F(CompressedText, ALongDocumentAmongOthersIsSplitAsThePlainOne) {
  const auto tokenizer = make_byte_tokenizer();
  make_folders(folder_ / "plain");
  make_folders(folder_ / "packed");
  for (const char* name : {"a.txt", "c.txt", "d.txt"})
    for (const char* where : {"plain/", "packed/"})
      write(std::string(where) + name, std::string(name) + " is short.");
  write("plain/b.txt", long_text());
  fs::copy(golden("long.txt.zst"), folder_ / "packed/b.txt.zst");
  for (const double val_fraction : {0.0, 0.2, 0.55, 0.9})
    EXPECT_TRUE(stream((folder_ / "packed").string(), val_fraction, *tokenizer) ==
                stream((folder_ / "plain").string(), val_fraction, *tokenizer))
        << val_fraction;
  EXPECT_TRUE(stream((folder_ / "packed/*").string(), 0.2, *tokenizer) ==
              stream((folder_ / "plain/*").string(), 0.2, *tokenizer));
}

TEST_F(CompressedText, JsonLinesHaveTheDocumentsAndLineNumbersOfThePlainFile) {
  const std::string plain = write("lines.jsonl", json_lines());
  const Documents expected = load_documents(std::vector{plain});
  ASSERT_EQ(expected.size(), 160u);
  for (const char* name : {"lines.jsonl.gz", "lines.jsonl.zst"}) {
    const Documents documents = load_documents(std::vector{golden(name)});
    EXPECT_EQ(documents.content_hash(), expected.content_hash()) << name;
    EXPECT_EQ(documents[159].name, golden(name) + ":200");
    EXPECT_THAT(data_error([&] { load_documents(std::vector{golden(name)}, "words"); }),
                HasSubstr(std::string(name) + ":1: has no field \"words\""));
  }
}

TEST_F(CompressedText, TheFirstBytesDecideAndAWrongNameIsNamed) {
  const std::string packed = read_file(golden("lines.jsonl.zst"));
  EXPECT_EQ(load_documents(std::vector{write("a.jsonl", packed)}).size(), 160u);
  EXPECT_EQ(load_documents(std::vector{write("b.jsonl.gz", packed)}).size(), 160u);
  EXPECT_THAT(
      data_error([&] { load_documents(std::vector{write("page.jsonl.gz", "<html>not found")}); }),
      HasSubstr("is neither gzip nor zstd, although its name ends in .gz (it begins with byte 0x3c)"));
  EXPECT_THAT(data_error([&] { load_documents(std::vector{write("empty.txt.zst", "")}); }),
              HasSubstr("is empty"));
  EXPECT_THAT(data_error([&] { load_documents(std::vector{write("a.tar.zst", packed)}); }),
              HasSubstr("an archive"));
  EXPECT_THAT(data_error([&] { load_documents(std::vector{write("a.csv.zst", packed)}); }),
              HasSubstr("is a table"));
  EXPECT_EQ(name_inside("a/b.tgz"), "a/b.tar");
  EXPECT_EQ(name_inside("a/b.JSON.GZ"), "a/b.JSON");
}

TEST_F(CompressedText, ATruncatedOrDamagedFileIsNamedWithItsPlace) {
  for (const std::string name : {"lines.jsonl.gz", "lines.jsonl.zst", "long.txt.gz", "long.txt.zst"}) {
    const std::string good = read_file(golden(name));
    const auto error_with = [&](const std::string& bytes) {
      const std::string file = write(name, bytes);
      return data_error([&] { StreamedCorpus({file}, 0, "text"); });
    };
    for (const size_t left : {good.size() - 1, good.size() / 2, size_t{22}})
      EXPECT_THAT(error_with(good.substr(0, left)),
                  AllOf(HasSubstr(name), HasSubstr("the compressed data are cut off at byte")))
          << left;
    std::string bad = good;
    bad[bad.size() - (name.ends_with("gz") ? 8 : 1)] ^= 1;  // a checksum
    EXPECT_THAT(error_with(bad), AllOf(HasSubstr(name), HasSubstr("are damaged"))) << name;
    EXPECT_THAT(error_with(good + "behind"), HasSubstr(name)) << name;
  }
  const std::string padded = read_file(golden("lines.jsonl.gz")) + std::string(512, '\0');
  EXPECT_EQ(load_documents(std::vector{write("padded.jsonl.gz", padded)}).size(), 160u);
}

TEST_F(CompressedText, AnUnpackedBlockThatIsNotTextIsRefusedWithTheLineOfThePlainFile) {
  TextBlockCheck check("file");
  EXPECT_EQ(check.check("one\ntwo \xc3", false), 8u);  // the character continues in the next block
  EXPECT_EQ(check.check("\xc3\xa9\nthree", false), 8u);
  EXPECT_THAT(data_error([&] { check.check("\nfour \xff and more", false); }),
              HasSubstr("file:4: is not UTF-8: byte 0xff at offset 22"));
  TextBlockCheck last("file");
  EXPECT_THAT(data_error([&] { last.check("cut \xc3", true); }), HasSubstr("byte 0xc3 at offset 4"));
  EXPECT_THAT(data_error([&] { last.check(std::string_view("nul\0", 4), true); }),
              HasSubstr("NUL byte at offset 3"));
}

}  // namespace
}  // namespace ingot
