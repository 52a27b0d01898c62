#include "ingot/run/record/folder_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "ingot/core/error.h"

namespace ingot {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kName;
  // O_NOFOLLOW: the file behind a link does not belong to this run and must not be truncated. O_NONBLOCK:
  // do not wait for a FIFO.
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  const int error = errno;
  struct stat info {};
  const bool is_foreign =
      fd < 0 ? error == ELOOP : fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 1;
  if (is_foreign) {
    if (fd >= 0) close(fd);
    fail(ErrorKind::kDisk, "{}: must be a plain file of its own, not a link, FIFO or device; remove it",
         path.string());
  }
  if (fd < 0) fail(ErrorKind::kDisk, "cannot write {}: {}", path.string(), std::strerror(error));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char owner[32] = {};
    const bool is_known = read(fd, owner, sizeof owner - 1) > 0;
    close(fd);
    fail(ErrorKind::kUsage,
         "another process{} is writing to the folder {}; wait for it or choose another --out",
         is_known ? " (" + std::string(owner) + ")" : "", folder.string());
  }
  const std::string owner = fmt::format("pid {}", getpid());
  // The next process's error message has the id. It is optional: a full disk must not keep a run from
  // resuming.
  if (ftruncate(fd, 0) == 0) [[maybe_unused]]
    const ssize_t written = write(fd, owner.data(), owner.size());
  fd_ = fd;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ingot
