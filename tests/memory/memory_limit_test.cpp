// Tests host_memory_limit() on made-up files of /proc/meminfo and control groups in a temporary folder.
#include "ingot/memory/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/memory/memory_check.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kMega = 1 << 20;

class MemoryLimitTest : public FolderTest {
 protected:
  MemoryLimitTest() {
    files_ = {.meminfo = folder_ / "meminfo", .cgroup = folder_ / "self", .cgroup_root = folder_ / "cgroup"};
    write_file(files_.meminfo,
               "MemTotal:       16384000 kB\nMemFree:          102400 kB\nMemAvailable:    8192000 kB\n"
               "SwapFree:        1024000 kB\n");
  }

  void version2(const std::string& path, const std::string& limit, uint64_t used, uint64_t file_pages) {
    const std::filesystem::path at = files_.cgroup_root / path;
    make_folders(at);
    write_file(at / "memory.max", limit + "\n");
    write_file(at / "memory.current", fmt::format("{}\n", used));
    write_file(at / "memory.stat",
               fmt::format("anon 7\ninactive_file {}\nactive_file {}\n", file_pages, file_pages));
  }

  MemoryFiles files_;
};

TEST_F(MemoryLimitTest, IsWhatTheMachineHasAvailable) {
  const MemoryLimit limit = host_memory_limit(files_);
  EXPECT_EQ(limit.bytes, uint64_t{8192000} * 1024);
  EXPECT_THAT(limit.source, HasSubstr("MemAvailable"));
  EXPECT_EQ(host_memory_limit(files_, true).bytes, uint64_t{8192000 + 1024000} * 1024);
}

TEST_F(MemoryLimitTest, IsUnknownWithoutMeminfo) {
  std::filesystem::remove(files_.meminfo);
  EXPECT_EQ(host_memory_limit(files_).bytes, MemoryLimit::kUnknown);
}

TEST_F(MemoryLimitTest, IsTheTightestControlGroupUpToTheRoot) {
  write_file(files_.cgroup, "0::/slurm/job_7/step_0\n");
  version2("slurm/job_7/step_0", "max", 10 * kMega, 0);
  EXPECT_EQ(host_memory_limit(files_).bytes, uint64_t{8192000} * 1024);
  version2("slurm/job_7", fmt::format("{}", 2000 * kMega), 900 * kMega, 200 * kMega);
  const MemoryLimit limit = host_memory_limit(files_);
  EXPECT_EQ(limit.bytes, 1500 * kMega) << "pages of files do not count as taken";
  EXPECT_THAT(limit.source, AllOf(HasSubstr("the control group /slurm/job_7 "), HasSubstr("memory.max")));
  version2("slurm", fmt::format("{}", 1000 * kMega), 900 * kMega, 0);
  EXPECT_EQ(host_memory_limit(files_).bytes, 100 * kMega);
  version2("slurm", fmt::format("{}", 1000 * kMega), 1200 * kMega, 0);
  EXPECT_EQ(host_memory_limit(files_).bytes, 0u) << "more in use than allowed";
}

// Without a control group namespace, a process in a container sees the path on the host, but only the
// root of the hierarchy exists inside the container.
TEST_F(MemoryLimitTest, IsFoundAtTheRootOfAContainer) {
  write_file(files_.cgroup, "0::/docker/0123456789abcdef\n");
  version2(".", fmt::format("{}", 512 * kMega), 12 * kMega, 0);
  EXPECT_EQ(host_memory_limit(files_).bytes, 500 * kMega);
}

TEST_F(MemoryLimitTest, ReadsVersionOneToo) {
  write_file(files_.cgroup, "12:cpu,cpuacct:/\n4:memory:/batch/job\n0::/elsewhere\n");
  const std::filesystem::path at = files_.cgroup_root / "memory/batch";
  make_folders(at);
  write_file(at / "memory.limit_in_bytes", fmt::format("{}\n", 300 * kMega));
  write_file(at / "memory.usage_in_bytes", fmt::format("{}\n", 120 * kMega));
  write_file(at / "memory.stat", fmt::format("total_inactive_file {}\ntotal_active_file 0\n", 20 * kMega));
  EXPECT_EQ(host_memory_limit(files_).bytes, 200 * kMega);
}

TEST_F(MemoryLimitTest, WeightsThatExceedItAreRefused) {
  EXPECT_NO_THROW(require_memory(uint64_t{8192000} * 1024, "the weights of x", files_));
  EXPECT_THAT(
      error_of([&] { require_memory(20'000 * kMega, "the weights of x", files_); }, ErrorKind::kMemory),
      AllOf(HasSubstr("the weights of x take 21.0 GB"), HasSubstr("9.4 GB")));
}

}  // namespace
}  // namespace ingot
