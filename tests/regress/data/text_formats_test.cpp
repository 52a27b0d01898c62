// Seen: a .json array and a .csv silently became one plain document each; `tokenizer train` took JSON
// Lines for prose. Wanted: input that is not plain text is refused with a command that converts it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/data/corpus.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {
using namespace std::string_literals;
using ::testing::HasSubstr;

class TextFormats : public FolderTest {
 protected:
  Documents load(const std::string& name, const std::string& bytes) const {
    write_file(folder_ / name, bytes);
    return load_documents(std::vector<std::string>{(folder_ / name).string()});
  }
  void expect_refused(const std::string& name, const std::string& bytes, const std::string& part) const {
    EXPECT_THAT(data_error([&] { const Documents documents = load(name, bytes); }),
                testing::AllOf(HasSubstr((folder_ / name).string()), HasSubstr(part)))
        << name;
  }
};

TEST_F(TextFormats, JsonArraysAndTablesAreNeverProse) {
  expect_refused("a.json", "\n [{\"text\": \"one\"}, {\"text\": \"two\"}]\n", "jq -c '.[]'");
  expect_refused("b.json", "{\n  \"text\": \"one\"\n}\n", "jq -c .");
  expect_refused("c.json", "\"text\"", "is not JSON with text");
  expect_refused("d.csv", "text,label\nhello,1\n", "csv.DictReader");
  expect_refused("e.TSV", "text\tlabel\nhello\t1\n", "csv.DictReader");
}

TEST_F(TextFormats, JsonWithOneObjectPerLineIsJsonLines) {
  const Documents documents = load("lines.json", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[1].text, "two");
}

TEST_F(TextFormats, OtherFormatsAreNamed) {
  expect_refused("a.parquet", "PAR1\x15\0\x15"s,
                 "a Parquet table; write its text column as JSON Lines: python3 "
                 "examples/data/table_to_jsonl.py FILE --column NAME");
  expect_refused("b.txt", "%PDF-1.7\nnot prose", "a PDF document");
  expect_refused("c.arrow", "ARROW1\0\0"s, "an Arrow table");
  expect_refused("d.txt", "\x89PNG\r\n\x1a\n", "an image");
  expect_refused("e.jsonl.gz", "\x1f\x8b\x08\0"s, "are cut off");
  expect_refused("f.zst", "\x28\xb5\x2f\xfd", "are cut off");
  expect_refused("g", "PK\x03\x04\x14\0"s, "a zip archive");
  expect_refused("h.txt", "text\0more"s, "NUL byte at offset 4");
  EXPECT_EQ(load("prose.txt", "PK is a name, and BZh is none.").size(), 1u);
  EXPECT_EQ(load("GGUF.md", "GGUF is a format of models.").size(), 1u);
}

}  // namespace
}  // namespace ingot
