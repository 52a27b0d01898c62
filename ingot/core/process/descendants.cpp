#include "ingot/core/process/descendants.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace ingot {
namespace {

// Returns the parent of a process of this machine; 0 if it has ended.
pid_t parent_of(const std::filesystem::path& process) {
  std::ifstream in(process / "stat");
  std::string text;
  std::getline(in, text, '\0');
  const size_t name_end = text.rfind(')');  // the name itself may hold spaces and brackets
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (parent_of(entry.path()) == ::getpid()) found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

int end_descendants(double most_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(most_s);
  std::set<pid_t> killed;
  while (std::chrono::steady_clock::now() < end) {
    const std::vector<pid_t> left = children();
    if (left.empty()) break;
    for (const pid_t child : left) {
      if (::waitpid(child, nullptr, WNOHANG) == child) continue;
      ::kill(child, SIGKILL);
      killed.insert(child);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return static_cast<int>(killed.size());
}

}  // namespace ingot
