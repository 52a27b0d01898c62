// The choices among kernels that processes share through a file.
#include "ingot/ops/cuda/kernel_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using ::testing::Optional;

class KernelChoicesTest : public FolderTest {
 protected:
  std::filesystem::path file = folder_ / "ingot" / "products";
};

TEST_F(KernelChoicesTest, OutliveTheProcess) {
  KernelChoices first(file);
  EXPECT_EQ(first.find("a"), std::nullopt);
  EXPECT_EQ(first.keep("a", "3 4"), "3 4");
  EXPECT_EQ(first.keep("b", "yes"), "yes");
  const KernelChoices second(file);
  EXPECT_THAT(second.find("a"), Optional(std::string("3 4")));
  EXPECT_THAT(second.find("b"), Optional(std::string("yes")));
}

// Two processes time the same kernels at the same time, and both then use the first one's choice.
TEST_F(KernelChoicesTest, TheFirstChoiceHoldsForAllProcesses) {
  KernelChoices first(file), second(file);
  EXPECT_EQ(first.keep("a", "1"), "1");
  EXPECT_EQ(second.keep("a", "2"), "1");
  EXPECT_THAT(second.find("a"), Optional(std::string("1")));
  EXPECT_EQ(second.keep("b", "2"), "2");
  EXPECT_EQ(first.keep("b", "1"), "2");
  EXPECT_EQ(read_file(file), "a 1\nb 2\n");
}

TEST_F(KernelChoicesTest, ManyWritersLoseNothing) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      KernelChoices choices(file);
      for (int key = 0; key < 50; ++key) choices.keep("key" + std::to_string(key), std::to_string(w));
    });
  for (std::thread& writer : writers) writer.join();
  const std::string text = read_file(file);
  EXPECT_EQ(std::ranges::count(text, '\n'), 50);
}

// A process was killed while it wrote.
TEST_F(KernelChoicesTest, AnUnfinishedLineIsNoChoice) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << "a 1\nb 2";
  KernelChoices choices(file);
  EXPECT_THAT(choices.find("a"), Optional(std::string("1")));
  EXPECT_EQ(choices.find("b"), std::nullopt);
  EXPECT_EQ(choices.keep("b", "3"), "3");
  EXPECT_EQ(read_file(file), "a 1\nb 3\n");
}

TEST_F(KernelChoicesTest, WithoutAFileLastAsLongAsTheProcess) {
  std::filesystem::create_directories(file);  // a folder is in the file's place
  for (const std::filesystem::path& path : {std::filesystem::path(), file}) {
    KernelChoices choices(path);
    EXPECT_EQ(choices.keep("a", "1"), "1");
    EXPECT_EQ(choices.keep("a", "2"), "1");
  }
}

// The candidates took turns. One burst of other work met two of the first one's turns and one of the
// second's.
TEST(LeastMedian, PassesOverABurst) {
  EXPECT_EQ(least_median({{1, 9, 9, 1, 1}, {2, 9, 2, 2, 2}}), 0u);
  EXPECT_EQ(least_median({{2, 2, 2}, {1, 9, 1}, {1, 1, 9}}), 1u);
}

}  // namespace
}  // namespace ingot
