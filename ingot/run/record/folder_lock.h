// FolderLock keeps other processes out of the folder of a run or of a sweep.
#pragma once

#include <filesystem>

namespace ingot {

class FolderLock {
 public:
  static constexpr const char* kName = ".lock";

  // Locks the folder until this object or the process ends. Throws a kUsage error that names the other
  // process if the folder is locked already; a kDisk error if the lock's file cannot be written or is no
  // plain file.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace ingot
