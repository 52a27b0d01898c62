// The control groups of this process, in which containers, batch systems and systemd write its limits.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace ingot {

struct CgroupFiles {
  std::filesystem::path self = "/proc/self/cgroup";  // the control groups of this process
  std::filesystem::path root = "/sys/fs/cgroup";
};

struct Cgroup {
  std::filesystem::path folder;  // the folder of the group's files
  std::string name;              // "/user.slice/job_7"
  int version = 2;
};

// Calls `visit` for the process's own group and each of its ancestors up to the root, in version 2 and in the
// version 1 hierarchy of `controller` ("memory", "cpu"). In a container the path may be the host's, of which
// only the root is visible, so the files of a group may be missing.
void visit_cgroups(const CgroupFiles& files, const std::string& controller,
                   const std::function<void(const Cgroup&)>& visit);

}  // namespace ingot
