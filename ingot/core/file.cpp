#include "ingot/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/output.h"
#include "ingot/core/process/shrunken_file.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

constexpr size_t kWaitingBytes = size_t{1} << 20;  // most bytes that a RangeFile buffers

// Opens a regular file that is not a link for writing. Returns -1 and sets errno on failure. O_NONBLOCK
// keeps a FIFO from blocking the call.
int open_ranges(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  return errno = EINVAL, -1;
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail(ErrorKind::kData, "{}: cannot be read: {}; check the path and its permissions", path.string(),
         std::strerror(errno));
  struct stat info {};
  const bool is_regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!is_regular) {
    ::close(fd);
    fail(ErrorKind::kData, "{}: is not a regular file; give a file", path.string());
  }
  size_bytes_ = static_cast<size_t>(info.st_size);
  if (size_bytes_ > 0) {
    void* memory = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    if (memory == MAP_FAILED) {
      ::close(fd);
      fail(ErrorKind::kData, "{}: cannot be mapped: {}", path.string(), std::strerror(error));
    }
    data_ = memory;
  }
  ::close(fd);
  if (data_) range_ = add_mapped_range(data_, size_bytes_, path_.string());
}

MappedFile::~MappedFile() {
  remove_mapped_range(range_);
  if (data_) ::munmap(const_cast<void*>(data_), size_bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      range_(std::exchange(other.range_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(range_, other.range_);
  return *this;
}

std::string read_file(const fs::path& path) { return std::string(MappedFile(path).text()); }

bool path_exists(const fs::path& path) {
  std::error_code error;
  const bool is_there = fs::exists(path, error);
  if (error)
    fail(ErrorKind::kData, "{}: cannot be read: {}; check the path and its permissions", path.string(),
         error.message());
  return is_there;
}

OutputFile::OutputFile(const fs::path& path) : path_(path) {
  const OutputPlace place = find_output(path);
  is_through_ = place.is_written_through();
  if (is_through_) {
    fd_ = open_through(place);
    return;
  }
  path_ = place.path;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd_ < 0)
    fail(ErrorKind::kDisk, "{}: cannot be written: {}; choose a folder you may write to", path.string(),
         std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  discard();
}

void OutputFile::discard() {
  if (!is_through_) ::unlink(path_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(ErrorKind::kDisk, "{}: writing failed after {} bytes: {}; free some space and try again",
           path_.string(), written_bytes_, n < 0 ? std::strerror(errno) : "nothing was written");
    bytes = bytes.subspan(static_cast<size_t>(n));
    written_bytes_ += static_cast<uint64_t>(n);
  }
}

void OutputFile::close() {
  const bool is_synced = is_through_ || ::fsync(fd_) == 0;  // a device or pipe has nothing to flush
  const int sync_error = errno;
  const bool is_closed = ::close(std::exchange(fd_, -1)) == 0;
  if (is_synced && is_closed) return;
  const int error = is_synced ? errno : sync_error;
  discard();
  fail(ErrorKind::kDisk, "{}: flushing to disk failed: {}; free some space and try again", path_.string(),
       std::strerror(error));
}

void RangeFile::create(const fs::path& path, uint64_t file_bytes) {
  const int fd = open_ranges(path, O_CREAT | O_TRUNC);
  if (fd < 0)
    fail(ErrorKind::kDisk, "{}: cannot be written: {}; choose a folder you may write to", path.string(),
         std::strerror(errno));
  const auto size = static_cast<off_t>(file_bytes);
  bool is_made = ::ftruncate(fd, size) == 0;
  if (is_made && size > 0) is_made = ::fallocate(fd, 0, 0, size) == 0 || errno == EOPNOTSUPP;
  const int error = errno;
  ::close(fd);
  if (!is_made)
    fail(ErrorKind::kDisk, "{}: {} bytes cannot be taken: {}; free some space and try again", path.string(),
         file_bytes, std::strerror(error));
}

RangeFile::RangeFile(const fs::path& path) : path_(path) {
  fd_ = open_ranges(path, 0);
  if (fd_ < 0)
    fail(ErrorKind::kDisk, "{}: cannot be opened: {}; all ranks must see the folder", path.string(),
         std::strerror(errno));
  waiting_.reserve(kWaitingBytes);
}

RangeFile::~RangeFile() {
  if (fd_ >= 0) ::close(fd_);
}

void RangeFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (offset != begin_ + waiting_.size() || waiting_.size() == kWaitingBytes) flush();
    if (waiting_.empty()) begin_ = offset;
    const size_t n = std::min(bytes.size(), kWaitingBytes - waiting_.size());
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    offset += n;
  }
}

void RangeFile::flush() {
  std::span<const std::byte> rest = waiting_;
  while (!rest.empty()) {
    const ssize_t n = ::pwrite(fd_, rest.data(), rest.size(), static_cast<off_t>(begin_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(ErrorKind::kDisk, "{}: writing at byte {} failed: {}; free some space and try again",
           path_.string(), begin_, n < 0 ? std::strerror(errno) : "nothing was written");
    rest = rest.subspan(static_cast<size_t>(n));
    begin_ += static_cast<uint64_t>(n);
  }
  waiting_.clear();
}

void RangeFile::close() {
  flush();
  const bool is_synced = ::fsync(fd_) == 0;
  const int sync_error = errno;
  const bool is_closed = ::close(std::exchange(fd_, -1)) == 0;
  if (!is_synced || !is_closed)
    fail(ErrorKind::kDisk, "{}: flushing to disk failed: {}; free some space and try again", path_.string(),
         std::strerror(is_synced ? errno : sync_error));
}

void write_file(const fs::path& path, std::string_view text) {
  ReplacedFile file(path);
  file.write(text);
  file.commit();
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(ErrorKind::kDisk, "{}: cannot be opened: {}", folder.string(), std::strerror(errno));
  const bool is_synced = ::fsync(fd) == 0 || errno == EINVAL;  // EINVAL: the file system cannot sync folders
  const int error = errno;
  ::close(fd);
  if (!is_synced)
    fail(ErrorKind::kDisk, "{}: flushing the folder failed: {}", folder.string(), std::strerror(error));
}

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "ingot";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "ingot";
  return {};
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail(ErrorKind::kDisk, "{}: the folder cannot be made: {}; choose a folder you may write to",
         folder.string(), error.message());
}

}  // namespace ingot
