// Tests machine_thread_limit() on made-up control groups in a temporary folder.
#include "ingot/core/process/thread_limit.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using testing::HasSubstr;

class ThreadLimitTest : public FolderTest {
 protected:
  CpuSources sources(int cores, int allowed) const {
    return {.cgroups = {.self = folder_ / "self", .root = folder_ / "cgroup"},
            .cores = cores,
            .allowed = allowed};
  }
  void version2(const std::string& path, const std::string& max) const {
    make_folders(folder_ / "cgroup" / path);
    write_file(folder_ / "cgroup" / path / "cpu.max", max + "\n");
  }
  void version1(const std::string& path, int64_t quota, int64_t period) const {
    make_folders(folder_ / "cgroup/cpu" / path);
    write_file(folder_ / "cgroup/cpu" / path / "cpu.cfs_quota_us", fmt::format("{}\n", quota));
    write_file(folder_ / "cgroup/cpu" / path / "cpu.cfs_period_us", fmt::format("{}\n", period));
  }
};

TEST_F(ThreadLimitTest, IsTheCoresOfTheMachineWithoutAnyOtherLimit) {
  const ThreadLimit limit = machine_thread_limit({}, sources(16, 16));
  EXPECT_EQ(limit.threads, 16);
  EXPECT_EQ(limit.source, "the cores of this machine");
}

TEST_F(ThreadLimitTest, IsTheAffinityMaskOfFewerCores) {
  const ThreadLimit limit = machine_thread_limit({}, sources(16, 3));
  EXPECT_EQ(limit.threads, 3);
  EXPECT_EQ(limit.source, "the affinity mask (3 of 16 cores)");
}

TEST_F(ThreadLimitTest, IsTheTightestQuotaOfEveryAncestorRoundedUp) {
  write_file(folder_ / "self", "0::/slurm/job_7/step_0\n");
  version2("slurm/job_7/step_0", "max 100000");
  EXPECT_EQ(machine_thread_limit({}, sources(16, 16)).threads, 16);
  version2("slurm/job_7", "600000 100000");
  EXPECT_EQ(machine_thread_limit({}, sources(16, 16)).threads, 6);
  version2("slurm", "150000 100000");
  const ThreadLimit limit = machine_thread_limit({}, sources(16, 16));
  EXPECT_EQ(limit.threads, 2);
  EXPECT_EQ(limit.source, "the control group /slurm (cpu.max: 1.5 CPUs)");
  version2("slurm/job_7/step_0", "1000 100000");
  EXPECT_EQ(machine_thread_limit({}, sources(16, 16)).threads, 1);
}

TEST_F(ThreadLimitTest, ReadsTheQuotaOfTheRootWhereAContainerHidesTheHostsPath) {
  write_file(folder_ / "self", "0::/docker/0123\n");
  version2("", "200000 100000");
  EXPECT_EQ(machine_thread_limit({}, sources(16, 16)).threads, 2);
}

TEST_F(ThreadLimitTest, ReadsVersion1AlsoWhereControllersShareAHierarchy) {
  write_file(folder_ / "self", "9:name=systemd:/\n4:cpu,cpuacct:/job/step\n3:cpuset:/job\n");
  version1("job/step", -1, 100000);
  EXPECT_EQ(machine_thread_limit({}, sources(8, 8)).threads, 8);
  version1("job", 250000, 100000);
  const ThreadLimit limit = machine_thread_limit({}, sources(8, 8));
  EXPECT_EQ(limit.threads, 3);
  EXPECT_THAT(limit.source, HasSubstr("/job (cpu.cfs_quota_us: 2.5 CPUs)"));
}

TEST_F(ThreadLimitTest, RanksDivideTheHostsCoresAndItsQuotaButNoMaskOfTheirOwn) {
  EXPECT_EQ(machine_thread_limit({.ranks = 4, .cores = 16}, sources(16, 16)).threads, 4);
  EXPECT_EQ(machine_thread_limit({.ranks = 4, .cores = 16}, sources(16, 4)).threads,
            4);  // a launcher has bound them
  EXPECT_EQ(machine_thread_limit({.ranks = 2, .cores = 4}, sources(16, 4)).threads,
            2);  // a container's cores
  write_file(folder_ / "self", "0::/job\n");
  version2("job", "600000 100000");
  const ThreadLimit limit = machine_thread_limit({.ranks = 4, .cores = 16}, sources(16, 16));
  EXPECT_EQ(limit.threads, 1);
  EXPECT_THAT(limit.source, HasSubstr("6 CPUs, for 4 ranks"));
  EXPECT_EQ(machine_thread_limit({.ranks = 32, .cores = 16}, sources(16, 16)).threads, 1);
}

TEST_F(ThreadLimitTest, WarnsOfThreadsThatTheMachineCannotRunAtOnce) {
  const ThreadLimit machine{.threads = 1, .source = "the control group /job (cpu.max: 1 CPUs)"};
  EXPECT_THAT(thread_warning({.machine = machine, .chosen = {.threads = 16, .source = "train.threads"}}),
              testing::AllOf(HasSubstr("train.threads = 16"), HasSubstr("the control group /job")));
  EXPECT_EQ(thread_warning({.machine = machine, .chosen = {.threads = 1, .source = "train.threads"}}), "");
  EXPECT_EQ(thread_warning({.machine = machine, .chosen = machine}), "");
  EXPECT_EQ(thread_warning({}), "");  // a library's caller that has not asked
}

TEST_F(ThreadLimitTest, NamesMpirunsBindingToOneCore) {
  const ThreadLimit bound{.threads = 1, .source = "the affinity mask (1 of 16 cores)"};
  EXPECT_EQ(thread_warning({.machine = bound, .chosen = bound, .unbound = 8}), "");
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_THAT(thread_warning({.machine = bound, .chosen = bound, .unbound = 8}), HasSubstr("--bind-to none"));
  EXPECT_EQ(thread_warning({.machine = bound, .chosen = bound, .unbound = 1}), "");  // as many ranks as cores
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

}  // namespace
}  // namespace ingot
