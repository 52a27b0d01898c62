// The program's calls of the file system, the clock and the process id. In a task of a simulation they are
// simulated; anywhere else they go to the system. The C++ library's own calls end here too. Calls inside of
// the C library (fopen, opendir) do not, so files that are only read, and train.log, see no faults.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <string>

#include "tests/simulated_ranks/simulated_files.h"

namespace ingot::simulated {
namespace {

using Access = SimulatedFiles::Access;

constexpr double kClockCall_s = 1e-6;
constexpr time_t kFirst_s = 1'800'000'000;  // the time of day at which a simulation begins

// Returns the files if the calling thread is a task that sees them.
SimulatedFiles* files() { return Scheduler::current() ? simulated_files() : nullptr; }

std::string absolute(int folder, const char* path) {
  if (path[0] == '/') return path;
  char base[4096];
  const std::string link = folder == AT_FDCWD ? "/proc/self/cwd" : fmt::format("/proc/self/fd/{}", folder);
  const ssize_t n = ::readlink(link.c_str(), base, sizeof base);
  return n < 0 ? path : std::string(base, static_cast<size_t>(n)) + "/" + path;
}

// Returns the files if the path is one of theirs.
SimulatedFiles* files_of(const std::string& path) {
  SimulatedFiles* all = files();
  return all && all->holds(path) ? all : nullptr;
}

SimulatedFiles* files_of(int fd) {
  SimulatedFiles* all = files();
  return all && all->path_of(fd) ? all : nullptr;
}

int failed(int error) { return errno = error, -1; }

int open_at(int folder, const char* name, int flags, mode_t mode) {
  const auto real = [&] { return static_cast<int>(::syscall(SYS_openat, folder, name, flags, mode)); };
  if (!files()) return real();
  const std::string path = absolute(folder, name);
  SimulatedFiles* all = files_of(path);
  if (!all) return real();
  struct stat info {};
  const bool is_there = ::lstat(path.c_str(), &info) == 0;
  const bool is_made = !is_there && (flags & O_CREAT);
  if (const int error = all->enter("open", path, is_made ? Access::kWrite : Access::kRead))
    return failed(error);
  const int fd = real();
  if (fd >= 0) all->opened(fd, path, is_made);
  return fd;
}

ssize_t write_at(int fd, const void* bytes, size_t count, off_t offset, bool is_positional) {
  const auto real = [&](size_t n) {
    return static_cast<ssize_t>(is_positional ? ::syscall(SYS_pwrite64, fd, bytes, n, offset)
                                              : ::syscall(SYS_write, fd, bytes, n));
  };
  SimulatedFiles* all = files_of(fd);
  if (!all) return real(count);
  // A write inside the file needs no room on the disk.
  struct stat info {};
  const bool is_inside =
      is_positional && ::fstat(fd, &info) == 0 && offset + static_cast<off_t>(count) <= info.st_size;
  const Access access = is_inside ? Access::kFlush : Access::kWrite;
  if (const int error = all->enter("write", *all->path_of(fd), access)) return failed(error);
  const ssize_t n = real(count);
  if (n <= 0) return n;
  if (!is_positional) offset = ::lseek(fd, 0, SEEK_CUR) - n;
  all->wrote(fd, static_cast<uint64_t>(offset), static_cast<uint64_t>(n));
  return n;
}

int flush(int fd) {
  SimulatedFiles* all = files_of(fd);
  if (!all) return static_cast<int>(::syscall(SYS_fsync, fd));
  if (const int error = all->enter("fsync", *all->path_of(fd), Access::kFlush)) return failed(error);
  all->flushed(fd);
  return 0;
}

int remove_at(int folder, const char* name, int flags) {
  const auto real = [&] { return static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags)); };
  if (!files()) return real();
  const std::string path = absolute(folder, name);
  SimulatedFiles* all = files_of(path);
  if (!all) return real();
  if (const int error = all->enter("remove", path, Access::kChange)) return failed(error);
  all->will_remove(path);
  return real();
}

int rename_at(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const auto real = [&] {
    return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  };
  if (!files()) return real();
  const std::string source = absolute(from_folder, from), target = absolute(to_folder, to);
  SimulatedFiles* all = files_of(source);
  if (!all) return real();
  if (const int error = all->enter("rename", source, Access::kWrite)) return failed(error);
  all->will_rename(source, target, (flags & RENAME_EXCHANGE) != 0);
  return real();
}

int make_folder(const char* name, mode_t mode) {
  const auto real = [&] { return static_cast<int>(::syscall(SYS_mkdir, name, mode)); };
  if (!files()) return real();
  const std::string path = absolute(AT_FDCWD, name);
  SimulatedFiles* all = files_of(path);
  if (!all) return real();
  if (const int error = all->enter("mkdir", path, Access::kWrite)) return failed(error);
  const int code = real();
  if (code == 0) all->made_folder(path);
  return code;
}

void sleep_for(const timespec& time) {
  const double seconds = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  if (SimulatedFiles* all = simulated_files()) all->sleep(seconds);
}

}  // namespace

int real_close(int fd) { return static_cast<int>(::syscall(SYS_close, fd)); }
int real_unlink(const char* path) { return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0)); }

}  // namespace ingot::simulated

using namespace ingot::simulated;

// NOLINTBEGIN: the names and types are the C library's.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_at(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_at(folder, path, flags, mode);
}
int close(int fd) {
  if (SimulatedFiles* all = files_of(fd)) all->closed(fd);
  return real_close(fd);
}
ssize_t write(int fd, const void* bytes, size_t count) { return write_at(fd, bytes, count, 0, false); }
ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  return write_at(fd, bytes, count, offset, true);
}
int fsync(int fd) { return flush(fd); }
int fdatasync(int fd) { return flush(fd); }
int ftruncate(int fd, off_t bytes) noexcept {
  const auto real = [&] { return static_cast<int>(::syscall(SYS_ftruncate, fd, bytes)); };
  SimulatedFiles* all = files_of(fd);
  if (!all) return real();
  if (const int error = all->enter("ftruncate", *all->path_of(fd), Access::kChange)) return failed(error);
  all->cut(fd, static_cast<uint64_t>(bytes));
  return real();
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  SimulatedFiles* all = files_of(fd);
  if (all) {
    if (const int error = all->enter("fallocate", *all->path_of(fd), Access::kWrite)) return failed(error);
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}
int unlink(const char* path) noexcept { return remove_at(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return remove_at(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int folder, const char* path, int flags) noexcept { return remove_at(folder, path, flags); }
int remove(const char* path) noexcept {
  const int code = remove_at(AT_FDCWD, path, 0);
  return code != 0 && errno == EISDIR ? remove_at(AT_FDCWD, path, AT_REMOVEDIR) : code;
}
int rename(const char* from, const char* to) noexcept { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return rename_at(from_folder, from, to_folder, to, flags);
}
int mkdir(const char* path, mode_t mode) noexcept { return make_folder(path, mode); }
char* mkdtemp(char* path) noexcept {
  SimulatedFiles* all = files();
  constexpr size_t kNonce = 6;
  const size_t length = std::char_traits<char>::length(path);
  if (!all || length < kNonce) {
    static const auto real = reinterpret_cast<char* (*)(char*)>(::dlsym(RTLD_NEXT, "mkdtemp"));
    return real(path);
  }
  all->nonce(kNonce).copy(path + length - kNonce, kNonce);
  return make_folder(path, 0700) == 0 ? path : nullptr;
}
int statvfs(const char* path, struct statvfs* info) noexcept {
  static const auto real =
      reinterpret_cast<int (*)(const char*, struct statvfs*)>(::dlsym(RTLD_NEXT, "statvfs"));
  const int code = real(path, info);
  SimulatedFiles* all = files();
  if (all && all->holds(path)) {
    info->f_frsize = 4096;
    info->f_bavail = all->shows_full() ? 0 : 1 << 20;
  }
  return code;
}
int clock_gettime(clockid_t clock, timespec* time) noexcept {
  Task* task = Scheduler::current();
  if (!task || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC))
    return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (!task->is_clock_frozen) task->time_s += kClockCall_s;
  const double whole_s = std::floor(task->time_s);
  time->tv_sec = (clock == CLOCK_REALTIME ? kFirst_s : 1000) + static_cast<time_t>(whole_s);
  time->tv_nsec = static_cast<long>((task->time_s - whole_s) * 1e9);
  return 0;
}
int nanosleep(const timespec* time, timespec* left) {
  if (!Scheduler::current()) return static_cast<int>(::syscall(SYS_nanosleep, time, left));
  sleep_for(*time);
  return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  if (!Scheduler::current() || flags != 0)
    return static_cast<int>(::syscall(SYS_clock_nanosleep, clock, flags, time, left));
  sleep_for(*time);
  return 0;
}
pid_t getpid() noexcept {
  const Task* task = Scheduler::current();
  return task && task->pid > 0 ? task->pid : static_cast<pid_t>(::syscall(SYS_getpid));
}
}
// NOLINTEND
