// Seen: a line of a gigabyte in a JSON Lines file was parsed for 40 s and took 2.9 GB.
// Wanted: a line above 256 MB is refused before it is parsed, in plain files as in compressed ones.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "ingot/core/file.h"
#include "ingot/data/corpus_reader.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

TEST(LongLine, IsRefusedBeforeItIsParsed) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "a-book.jsonl";
  write_file(file, "{\"text\": \"a\"}\n{\"text\": \"");
  std::filesystem::resize_file(file, uintmax_t{1} << 30);
  CorpusReader reader(std::span(&file, 1), "text");
  std::vector<ReadDocument> batch;
  EXPECT_THAT(data_error([&] {
                while (reader.next(batch)) {
                }
              }),
              ::testing::HasSubstr("-book.jsonl:2: the line is longer than 256 MiB, the most that is "
                                   "read at once; split the document, or give it as a plain text file"));
}

}  // namespace
}  // namespace ingot
