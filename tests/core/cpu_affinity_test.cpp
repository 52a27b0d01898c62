#include "ingot/core/cuda/cpu_affinity.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

cpu_set_t usable() {
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  return cpus;
}

// In a thread of its own, because a bound thread stays bound.
void in_thread(const std::function<void()>& body) { std::thread(body).join(); }

TEST(CpuAffinity, TheCpusNearADeviceAreReadFromTheSystem) {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  make_folders(folder / "0000:c1:00.0");
  write_file(folder / "0000:c1:00.0" / "local_cpulist", "0-31,64-95\n");
  EXPECT_EQ(cpus_near("0000:C1:00.0", folder), "0-31,64-95");
  EXPECT_EQ(cpus_near("0000:17:00.0", folder), "");
}

TEST(CpuAffinity, AThreadIsBoundOnceAndItsThreadsWithIt) {
  const cpu_set_t all = usable();
  if (CPU_COUNT(&all) < 2 || CPU_COUNT(&all) < sysconf(_SC_NPROCESSORS_ONLN))
    GTEST_SKIP() << "this process may not use every CPU";
  in_thread([] {
    EXPECT_FALSE(bind_to_cpus(""));
    EXPECT_FALSE(bind_to_cpus("1023"));
    EXPECT_TRUE(bind_to_cpus("1,900-901"));
    in_thread([] {
      const cpu_set_t cpus = usable();
      EXPECT_EQ(CPU_COUNT(&cpus), 1);
      EXPECT_TRUE(CPU_ISSET(1, &cpus));
    });
    EXPECT_FALSE(bind_to_cpus("1"));  // the thread may no longer use every CPU
    const cpu_set_t cpus = usable();
    EXPECT_TRUE(CPU_ISSET(1, &cpus));
  });
  in_thread([&] {
    EXPECT_TRUE(bind_to_cpus("0-" + std::to_string(CPU_SETSIZE + 5)));
    const cpu_set_t cpus = usable();
    EXPECT_TRUE(CPU_EQUAL(&cpus, &all));
  });
}

}  // namespace
}  // namespace ingot
