// Seen: `ingot data prepare`, whose text shrank while it was read, ended with exit code 3 and left its
// unfinished folder, because no destructor runs in a signal handler.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "ingot/core/file.h"
#include "ingot/core/process/shrunken_file.h"
#include "ingot/data/token_source_shards.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

// Reads a mapped file that is cut after it was mapped, while a folder is filled.
void read_a_shrunken_text(const std::filesystem::path& folder) {
  explain_shrunken_files();
  const StagedFolder out(folder / "out");
  write_file(out.path() / "train_000001.bin", "tokens");
  write_file(folder / "text", std::string(8192, 'a'));
  const int fd = ::open((folder / "text").c_str(), O_RDWR);
  void* text = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, fd, 0);
  add_mapped_range(text, 8192, "text");
  if (::ftruncate(fd, 0) != 0) ::_exit(1);
  ::_exit(static_cast<volatile char*>(text)[4096]);
}

TEST(ShrunkenTextDeathTest, LeavesNoUnfinishedFolder) {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  EXPECT_EXIT(read_a_shrunken_text(folder), testing::ExitedWithCode(3), "text: a mapped file shrank");
  int left = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++left;
  EXPECT_EQ(left, 1) << "only the text is left";
}

}  // namespace
}  // namespace ingot
