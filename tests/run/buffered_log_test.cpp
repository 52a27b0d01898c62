#include "ingot/run/record/buffered_log.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ingot/core/error.h"
#include "tests/reference/file_size_limit.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

<<<<<<< HEAD:tests/run/buffered_log_test.cpp
// While it exists, no file of this process can grow beyond `bytes`: writes fail as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class BufferedLogTest : public testing::Test {
 protected:
  ~BufferedLogTest() override { std::filesystem::remove(path_); }
=======
class PatientLogTest : public FolderTest {
 protected:
>>>>>>> 0cf8f443544ea1594d3a1fcf5df999c579e873a4:tests/run/patient_log_test.cpp
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
