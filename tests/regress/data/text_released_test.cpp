// Seen: the whole corpus stayed in memory while the model trained (22 MB of books in addition to the planned
// 376 MB), because the validation text, which gzip and xz compress at the end, shares its storage. Wanted:
// only the validation text stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "ingot/data/builtin_corpus.h"
#include "ingot/run/data/run_data.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using TextReleased = ProgramInFolder;

// Returns true if this process has mapped the file. /proc/self/maps has no size, so that it is read as a
// stream.
bool is_mapped(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(file)) return true;
  return false;
}

TEST_F(TextReleased, OnlyTheValidationTextStays) {
  const std::string file = std::filesystem::canonical(path("text.txt"));
  {
    const MappedFile held{std::filesystem::path(file)};
    ASSERT_TRUE(is_mapped(file)) << "the test would not see a mapping";
  }
  DataConfig config;
  config.train = {file};
  config.tokenizer = "byte";
  const RunData data = load_run_data(config, std::nullopt);
  EXPECT_FALSE(is_mapped(file));
  ASSERT_EQ(data.val_documents.size(), 1u);
  const std::string text = read_file(file);
  EXPECT_TRUE(text.ends_with(data.val_documents[0].text));
  EXPECT_NEAR(static_cast<double>(data.val_documents[0].text.size()), 0.1 * static_cast<double>(text.size()),
              100);
}

TEST_F(TextReleased, ALongValidationTextDoesNotStayEither) {
  const std::string text(static_cast<size_t>(kYardstickBytes) + 1000, 'a');
  write_file(path("long.txt"), text);
  DataConfig config;
  config.train = {path("text.txt")};
  config.val = {path("long.txt")};
  config.tokenizer = "byte";
  const RunData data = load_run_data(config, std::nullopt);
  EXPECT_TRUE(data.val_documents.empty());
  EXPECT_GE(data.val.tokens(), kYardstickBytes);
}

}  // namespace
}  // namespace ingot
