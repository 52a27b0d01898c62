#include "ingot/run/record/buffered_log.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ingot/core/error.h"
#include "tests/reference/file_size_limit.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

class BufferedLogTest : public FolderTest {
 protected:
  std::vector<int64_t> steps() const {
    std::vector<int64_t> all;
    for (const MetricsRow& row : read_metrics(path_))
      all.push_back(static_cast<int64_t>(*row.number("step")));
    return all;
  }
  const std::filesystem::path path_ = folder_ / "metrics.jsonl";
};

TEST_F(BufferedLogTest, LinesThatCannotBeWrittenAreWrittenLaterInOrder) {
  BufferedLog log(path_);
  for (int64_t step = 1; step <= 3; ++step) log.write({{"step", step}});
  EXPECT_EQ(log.take_error(), std::nullopt);
  {
    const FileSizeLimit full(std::filesystem::file_size(path_) + 5);
    log.write({{"step", int64_t{4}}});
    const std::optional<std::string> trouble = log.take_error();
    ASSERT_TRUE(trouble);
    EXPECT_THAT(*trouble, testing::HasSubstr(path_.string()));
    log.write({{"step", int64_t{5}}});
    EXPECT_EQ(log.take_error(), std::nullopt) << "said once";
    EXPECT_EQ(log.waiting(), 2u);
    EXPECT_THROW(log.sync(), Error) << "a checkpoint must not claim lines that are not on the disk";
    EXPECT_THAT(steps(), testing::ElementsAre(1, 2, 3)) << "no part of a line stays";
  }
  log.write({{"step", int64_t{6}}});
  EXPECT_EQ(log.waiting(), 0u);
  log.sync();
  EXPECT_THAT(steps(), testing::ElementsAre(1, 2, 3, 4, 5, 6));
  const FileSizeLimit full_again(std::filesystem::file_size(path_));
  log.write({{"step", int64_t{7}}});
  EXPECT_TRUE(log.take_error()) << "said again when it begins again";
}

TEST_F(BufferedLogTest, TruncationDropsWaitingLinesToo) {
  BufferedLog log(path_);
  log.write({{"step", int64_t{1}}});
  {
    const FileSizeLimit full(std::filesystem::file_size(path_));
    for (int64_t step = 2; step <= 4; ++step) log.write({{"step", step}});
    log.truncate_after(3);
  }
  log.sync();
  EXPECT_THAT(steps(), testing::ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace ingot
