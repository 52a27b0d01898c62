// Seen: a line of a gigabyte in a JSON Lines file was parsed for 40 s and took 2.9 GB.
// Wanted: a line above 256 MB is refused before it is parsed, in plain files as in compressed ones.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/corpus_reader.h"

namespace ingot {
namespace {

TEST(LongLine, IsRefusedBeforeItIsParsed) {
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("{}-book.jsonl", getpid())).string();
  write_file(file, "{\"text\": \"a\"}\n{\"text\": \"");
  std::filesystem::resize_file(file, uintmax_t{1} << 30);
  CorpusReader reader(std::span(&file, 1), "text");
  std::vector<ReadDocument> batch;
  std::string error = "no error";
  try {
    while (reader.next(batch)) {
    }
  } catch (const Error& refusal) {
    EXPECT_EQ(refusal.kind(), ErrorKind::kData);
    error = refusal.what();
  }
  std::filesystem::remove(file);
  EXPECT_THAT(error,
              ::testing::HasSubstr("-book.jsonl:2: the line is longer than 256 MiB, the most that is "
                                   "read at once; split the document, or give it as a plain text file"));
}

}  // namespace
}  // namespace ingot
