// KernelChoices: which of several kernels computes a thing, chosen once by timing. Internal to ops.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

// The choices are kept in a file that all processes of a machine share. The first choice for a key holds for
// all of them, so equal runs give equal bits, and replicas use the same kernels. The file is a cache: if it
// cannot be written, the choices last as long as the process.
class KernelChoices {
 public:
  // An empty path stands for no file.
  explicit KernelChoices(std::filesystem::path file);
  // Returns this process's choices in the file of this name in cache_folder() (core/file.h).
  static KernelChoices& named(const std::string& name);

  // Keys and choices are text; a key has no spaces, and neither has line breaks.
  std::optional<std::string> find(const std::string& key) const;
  // Keeps the choice unless there is one for the key, from another process, say. Returns the one that holds.
  std::string keep(const std::string& key, const std::string& choice);

 private:
  void read_new_lines(int fd);

  const std::filesystem::path file_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> choices_;  // guarded by mutex_
  off_t read_bytes_ = 0;  // the lines before this place in the file are in choices_; guarded by mutex_
};

// Returns the number of the candidate whose times have the least median; the first of equal ones. REQUIRES:
// at least one candidate, each with at least one time.
size_t least_median(const std::vector<std::vector<double>>& times_s);

}  // namespace ingot
