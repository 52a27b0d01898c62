#include "ingot/core/output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/file.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxLinks = 40;  // the kernel's own limit

[[noreturn]] void refuse(const fs::path& path, int error) {
  fail(ErrorKind::kDisk, "{}: cannot be written: {}; choose a folder you may write to", path.string(),
       std::strerror(error));
}

template <typename Number>
std::optional<Number> parse_number(std::string_view digits) {
  Number number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
  return is_number && number >= 0 ? std::optional(number) : std::nullopt;
}

// Returns the N of /proc/self/fd/N, to which /dev/stdout and /dev/fd/N lead; nullopt for any other path.
std::optional<int> descriptor_of(const fs::path& path) {
  const std::string folder = path.parent_path().lexically_normal().string();
  const std::string own = fmt::format("/proc/{}/fd", ::getpid());
  if (folder != "/dev/fd" && folder != "/proc/self/fd" && folder != own) return std::nullopt;
  return parse_number<int>(path.filename().string());
}

// The end of the chain of links that starts at a path, and its stat; nullopt if nothing is there.
struct LinksEnd {
  fs::path path;
  std::optional<struct stat> info;
};

LinksEnd end_of_links(const fs::path& given) {
  fs::path path = given;
  for (int links = 0; links <= kMaxLinks; ++links) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) {
      if (errno == ENOENT && !path.empty()) return {path, std::nullopt};
      refuse(given, errno);
    }
    if (!S_ISLNK(info.st_mode) || descriptor_of(path)) return {path, info};
    std::error_code error;
    const fs::path next = fs::read_symlink(path, error);
    if (error) refuse(given, error.value());
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  fail(ErrorKind::kDisk, "{}: is a link that leads back to itself; give another path", given.string());
}

int connect_socket(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = path.native();
  if (name.size() >= sizeof address.sun_path) return errno = ENAMETOOLONG, -1;
  std::ranges::copy(name, address.sun_path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const int error = errno;
  ::close(fd);
  return errno = error, -1;
}

// Creates a new file. If the name exists, a dead process with the same PID left it, so it is removed first.
int create_temporary(const fs::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = ::open(path.c_str(), kFlags, 0644);
  if (fd >= 0 || errno != EEXIST) return fd;
  ::unlink(path.c_str());
  return ::open(path.c_str(), kFlags, 0644);
}

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(ErrorKind::kDisk, "{}: writing failed: {}", path.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

// Devices and pipes cannot be flushed; that is not an error.
bool is_flushed(int fd) { return ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS; }

}  // namespace

fs::path follow_links(const fs::path& path) { return end_of_links(path).path; }

OutputPlace find_output(const fs::path& given) {
  const LinksEnd end = end_of_links(given);
  OutputPlace place{.kind = OutputPlace::Kind::kNew, .path = end.path};
  if (const std::optional<int> descriptor = descriptor_of(end.path)) {
    place.kind = OutputPlace::Kind::kDescriptor;
    place.descriptor = *descriptor;
    return place;
  }
  if (!end.info) return place;
  if (S_ISDIR(end.info->st_mode))
    fail(ErrorKind::kDisk, "{}: is a folder; give the name of a file", given.string());
  if (::faccessat(AT_FDCWD, end.path.c_str(), W_OK, AT_EACCESS) != 0) refuse(given, errno);
  place.kind = S_ISREG(end.info->st_mode) ? OutputPlace::Kind::kFile : OutputPlace::Kind::kDirect;
  place.mode = end.info->st_mode & 0777;
  place.owner = end.info->st_uid;
  place.group = end.info->st_gid;
  return place;
}

int open_through(const OutputPlace& place) {
  int fd = -1;
  if (place.kind == OutputPlace::Kind::kDescriptor) {
    std::fflush(nullptr);  // so that output printed earlier comes first
    fd = ::fcntl(place.descriptor, F_DUPFD_CLOEXEC, 0);
  } else {
    fd = ::open(place.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && errno == ENXIO) fd = connect_socket(place.path);
  }
  if (fd < 0) fail(ErrorKind::kDisk, "{}: cannot be written: {}", place.path.string(), std::strerror(errno));
  return fd;
}

ReplacedFile::ReplacedFile(const fs::path& path) : place_(find_output(path)) {
  if (place_.is_written_through()) {
    through_ = open_through(place_);
    fd_ = ::memfd_create("output", MFD_CLOEXEC);
  } else {
    temporary_ = place_.path.string() + fmt::format(".tmp.{}", ::getpid());
    fd_ = create_temporary(temporary_);
  }
  if (fd_ >= 0) return;
  const int error = errno;
  if (through_ >= 0) ::close(through_);
  refuse(path, error);
}

ReplacedFile::~ReplacedFile() {
  if (through_ >= 0) ::close(through_);
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void ReplacedFile::put(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30),
                               static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(ErrorKind::kDisk, "{}: writing failed after {} bytes: {}; free some space and try again",
           place_.path.string(), offset, n < 0 ? std::strerror(errno) : "nothing was written");
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void ReplacedFile::write(std::span<const std::byte> bytes) {
  put(written_bytes_, bytes);
  written_bytes_ += bytes.size();
}

void ReplacedFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  INGOT_CHECK(offset + bytes.size() <= written_bytes_, "ReplacedFile::write_at: {} has {} bytes, not {}",
              place_.path.string(), written_bytes_, offset + bytes.size());
  put(offset, bytes);
}

void ReplacedFile::copy_through() {
  std::vector<std::byte> block(size_t{1} << 20);
  uint64_t offset = 0;
  while (offset < written_bytes_) {
    const ssize_t n = ::pread(fd_, block.data(), block.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse(place_.path, n < 0 ? errno : EIO);
    write_all(through_, std::span(block).first(static_cast<size_t>(n)), place_.path);
    offset += static_cast<uint64_t>(n);
  }
  if (!is_flushed(through_)) refuse(place_.path, errno);
}

void ReplacedFile::commit() {
  INGOT_CHECK(fd_ >= 0, "ReplacedFile::commit: {} is already committed", place_.path.string());
  if (place_.is_written_through()) {
    copy_through();
    ::close(std::exchange(fd_, -1));
    return;
  }
  if (place_.kind == OutputPlace::Kind::kFile) {
    // If the owner of the old file cannot be preserved, the new file belongs to this user.
    if (place_.owner != ::geteuid() || place_.group != ::getegid()) [[maybe_unused]]
      const int ignored = ::fchown(fd_, place_.owner, place_.group);
    ::fchmod(fd_, place_.mode);
  }
  const auto refuse_commit = [&](const char* what, int error) {
    fail(ErrorKind::kDisk, "{}: {}: {}; free some space and try again", place_.path.string(), what,
         std::strerror(error));
  };
  if (::fsync(fd_) != 0) refuse_commit("flushing to disk failed", errno);
  const bool is_closed = ::close(std::exchange(fd_, -1)) == 0;
  if (!is_closed || ::rename(temporary_.c_str(), place_.path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    refuse_commit(is_closed ? "cannot be replaced" : "flushing to disk failed", error);
  }
  sync_folder(place_.path.has_parent_path() ? place_.path.parent_path() : fs::path("."));
}

std::FILE* open_log(const fs::path& path) {
  const OutputPlace place = find_output(path);
  const int fd =
      place.kind == OutputPlace::Kind::kDescriptor
          ? open_through(place)
          : ::open(place.path.c_str(),
                   O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
  if (fd < 0 && errno == ENXIO)
    fail(ErrorKind::kDisk, "{}: is a FIFO without a reader; start the reader first", path.string());
  if (fd < 0) refuse(path, errno);
  std::FILE* file = ::fdopen(fd, "a");
  if (file) return file;
  const int error = errno;
  ::close(fd);
  refuse(path, error);
}

std::vector<fs::path> dead_temporaries(const fs::path& folder) {
  constexpr std::string_view kMark = ".tmp.";
  std::vector<fs::path> dead;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const size_t mark = name.rfind(kMark);
    if (mark == std::string::npos || mark == 0) continue;
    const auto pid = parse_number<pid_t>(std::string_view(name).substr(mark + kMark.size()));
    if (!pid || *pid == 0) continue;
    if (*pid == ::getpid() || (::kill(*pid, 0) != 0 && errno == ESRCH)) dead.push_back(it->path());
  }
  return dead;
}

}  // namespace ingot
