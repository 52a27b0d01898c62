/* A library for LD_PRELOAD that counts a program's calls on files in one folder and disturbs the n-th of them
 * (bench/chaos/file_calls.py). It reads:
 *   INGOT_CHAOS_FOLDER  only calls on paths that contain this text, and on files that were opened there, count
 *   INGOT_CHAOS_AT      number of the call to disturb, from 1; 0: none
 *   INGOT_CHAOS_FAULT   kill (before the call), EIO, ENOSPC, EINTR (the call fails), short (it transfers half)
 *   INGOT_CHAOS_LOG     file to which "number name" of every call is appended
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kMostFiles = 4096 };

static atomic_int calls;
static atomic_bool is_ours[kMostFiles]; /* descriptors that were opened in the folder */

static int is_in_folder(const char* path) {
  const char* folder = getenv("INGOT_CHAOS_FOLDER");
  return folder && path && strstr(path, folder) != NULL;
}

static int is_our_file(int fd) { return fd >= 0 && fd < kMostFiles && is_ours[fd]; }

static void log_call(int number, const char* name) {
  const char* log = getenv("INGOT_CHAOS_LOG");
  if (!log) return;
  char line[64];
  const int length = snprintf(line, sizeof line, "%d %s\n", number, name);
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  syscall(SYS_write, fd, line, (size_t)length);
  syscall(SYS_close, fd);
}

/* Counts a call. Returns 0 if it is to be carried out, the error with which it must fail, or -1 if it must be
 * short. */
static int count_call(const char* name) {
  const char *at = getenv("INGOT_CHAOS_AT"), *fault = getenv("INGOT_CHAOS_FAULT");
  const int number = atomic_fetch_add(&calls, 1) + 1;
  log_call(number, name);
  if (!at || !fault || atoi(at) != number) return 0;
  if (strcmp(fault, "kill") == 0) raise(SIGKILL);
  if (strcmp(fault, "EIO") == 0) return EIO;
  if (strcmp(fault, "ENOSPC") == 0) return ENOSPC;
  if (strcmp(fault, "EINTR") == 0) return EINTR;
  return strcmp(fault, "short") == 0 ? -1 : 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL_IF(counts, name)                             \
  do {                                                    \
    const int fault = (counts) ? count_call(name) : 0;    \
    if (fault > 0) {                                      \
      errno = fault;                                      \
      return -1;                                          \
    }                                                     \
  } while (0)
/* The same for a call that transfers `size` bytes, which a short one halves. */
#define TRANSFER(fd, name, size)                                    \
  do {                                                              \
    const int fault = is_our_file(fd) ? count_call(name) : 0;       \
    if (fault > 0) {                                                \
      errno = fault;                                                \
      return -1;                                                    \
    }                                                               \
    if (fault < 0 && (size) > 1) (size) /= 2;                       \
  } while (0)

static int opened(int fd, int counts) {
  if (fd >= 0 && fd < kMostFiles) is_ours[fd] = counts;
  return fd;
}

static mode_t mode_of(int flags, va_list more) {
  return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(more, int) : 0;
}

#define OPEN(function)                                       \
  int function(const char* path, int flags, ...) {           \
    va_list more;                                            \
    va_start(more, flags);                                   \
    const mode_t mode = mode_of(flags, more);                \
    va_end(more);                                            \
    const int counts = is_in_folder(path);                   \
    FAIL_IF(counts, flags & O_CREAT ? "create" : "open");    \
    return opened(REAL(function)(path, flags, mode), counts); \
  }
#define OPENAT(function)                                             \
  int function(int at, const char* path, int flags, ...) {           \
    va_list more;                                                    \
    va_start(more, flags);                                           \
    const mode_t mode = mode_of(flags, more);                        \
    va_end(more);                                                    \
    const int counts = is_in_folder(path) || is_our_file(at);        \
    FAIL_IF(counts, flags & O_CREAT ? "create" : "open");            \
    return opened(REAL(function)(at, path, flags, mode), counts);    \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void* data, size_t size) {
  TRANSFER(fd, "write", size);
  return REAL(write)(fd, data, size);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  TRANSFER(fd, "pwrite", size);
  return REAL(pwrite)(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  TRANSFER(fd, "pwrite", size);
  return REAL(pwrite64)(fd, data, size, offset);
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  TRANSFER(fd, "writev", count);
  return REAL(writev)(fd, parts, count);
}
ssize_t read(int fd, void* data, size_t size) {
  TRANSFER(fd, "read", size);
  return REAL(read)(fd, data, size);
}
ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  TRANSFER(fd, "pread", size);
  return REAL(pread)(fd, data, size, offset);
}
ssize_t pread64(int fd, void* data, size_t size, off64_t offset) {
  TRANSFER(fd, "pread", size);
  return REAL(pread64)(fd, data, size, offset);
}

int fsync(int fd) {
  FAIL_IF(is_our_file(fd), "fsync");
  return REAL(fsync)(fd);
}
int fdatasync(int fd) {
  FAIL_IF(is_our_file(fd), "fdatasync");
  return REAL(fdatasync)(fd);
}
int ftruncate(int fd, off_t size) {
  FAIL_IF(is_our_file(fd), "ftruncate");
  return REAL(ftruncate)(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  FAIL_IF(is_our_file(fd), "ftruncate");
  return REAL(ftruncate64)(fd, size);
}
/* Linux releases the descriptor even if close reports an error. */
int close(int fd) {
  if (!is_our_file(fd)) return REAL(close)(fd);
  const int fault = count_call("close");
  is_ours[fd] = 0;
  const int result = REAL(close)(fd);
  if (fault <= 0) return result;
  errno = fault;
  return -1;
}

int rename(const char* from, const char* to) {
  FAIL_IF(is_in_folder(from) || is_in_folder(to), "rename");
  return REAL(rename)(from, to);
}
int renameat(int at, const char* from, int to_at, const char* to) {
  FAIL_IF(is_in_folder(from) || is_our_file(at), "rename");
  return REAL(renameat)(at, from, to_at, to);
}
int renameat2(int at, const char* from, int to_at, const char* to, unsigned flags) {
  FAIL_IF(is_in_folder(from) || is_our_file(at), "rename");
  return REAL(renameat2)(at, from, to_at, to, flags);
}
int mkdir(const char* path, mode_t mode) {
  FAIL_IF(is_in_folder(path), "mkdir");
  return REAL(mkdir)(path, mode);
}
char* mkdtemp(char* pattern) {
  const int fault = is_in_folder(pattern) ? count_call("mkdir") : 0;
  if (fault <= 0) return REAL(mkdtemp)(pattern);
  errno = fault;
  return NULL;
}
int unlink(const char* path) {
  FAIL_IF(is_in_folder(path), "unlink");
  return REAL(unlink)(path);
}
int unlinkat(int at, const char* path, int flags) {
  FAIL_IF(is_in_folder(path) || is_our_file(at), "unlink");
  return REAL(unlinkat)(at, path, flags);
}
int rmdir(const char* path) {
  FAIL_IF(is_in_folder(path), "unlink");
  return REAL(rmdir)(path);
}
