#include "ingot/core/cuda/cpu_affinity.h"

#include <sched.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace ingot {

std::string cpus_near(const std::string& bus, const std::filesystem::path& devices) {
  std::string name;  // sysfs writes lower case, CUDA may not
  for (const unsigned char c : bus) name += static_cast<char>(std::tolower(c));
  std::string list;
  std::getline(std::ifstream(devices / name / "local_cpulist") >> std::ws, list);
  return list;
}

bool bind_to_cpus(const std::string& list) {
  cpu_set_t now, wanted;
  CPU_ZERO(&wanted);
  if (sched_getaffinity(0, sizeof now, &now) != 0 || CPU_COUNT(&now) < sysconf(_SC_NPROCESSORS_ONLN))
    return false;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0, last = 0;
    const int found = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (found == 1) last = first;
    for (int cpu = first; found > 0 && cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &wanted);
  }
  CPU_AND(&wanted, &wanted, &now);
  return CPU_COUNT(&wanted) > 0 && sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

}  // namespace ingot
