#include "ingot/watch/line_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ingot {
namespace {

constexpr size_t kBlock = size_t{1} << 16;  // bytes read at once
constexpr size_t kLastBytes = 64;           // bytes that are compared to recognise the file

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Returns the bytes at the offset, fewer at the file's end and none on an error.
std::string read_at(int fd, uint64_t offset, size_t bytes) {
  std::string text(bytes, '\0');
  ssize_t n = 0;
  do n = ::pread(fd, text.data(), bytes, static_cast<off_t>(offset));
  while (n < 0 && errno == EINTR);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

}  // namespace

int open_regular(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat info {};
  if (fd < 0 || (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))) return fd;
  ::close(fd);
  return -1;
}

std::string read_regular(const std::filesystem::path& path, size_t most_bytes) {
  const Descriptor file(open_regular(path));
  std::string text;
  while (file.fd() >= 0 && text.size() < most_bytes) {
    const std::string block = read_at(file.fd(), text.size(), std::min(kBlock, most_bytes - text.size()));
    if (block.empty()) break;
    text += block;
  }
  return text;
}

void read_lines(const std::filesystem::path& path, uint64_t offset, size_t most_bytes,
                const std::function<bool(std::string_view line)>& visit) {
  const Descriptor file(open_regular(path));
  std::string text;
  for (size_t sum = 0; file.fd() >= 0 && sum < most_bytes;) {
    const std::string block = read_at(file.fd(), offset + sum, std::min(kBlock, most_bytes - sum));
    if (block.empty()) return;
    sum += block.size();
    text += block;
    size_t begin = 0;
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
      if (!visit(std::string_view(text).substr(begin, end - begin))) return;
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.size() > LineTail::kLongestLine) return;
  }
}

bool LineTail::is_same_file(int fd, dev_t device, ino_t inode, uint64_t size_bytes) const {
  if (device != device_ || inode != inode_ || size_bytes < offset_) return false;
  return read_at(fd, offset_ - last_.size(), last_.size()) == last_;
}

void LineTail::forget() {
  offset_ = 0;
  partial_.clear();
  last_.clear();
  is_skipping_ = false;
}

void LineTail::consume(std::string_view bytes) {
  offset_ += bytes.size();
  last_.append(bytes.substr(bytes.size() - std::min(bytes.size(), kLastBytes)));
  if (last_.size() > kLastBytes) last_.erase(0, last_.size() - kLastBytes);
}

void LineTail::take(std::string_view bytes, const Visit& visit) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (!is_skipping_) partial_.append(line);
    if (end == std::string_view::npos) {
      // The bytes of a line that is too long are dropped.
      if (is_skipping_) consume(line);
      if (partial_.size() <= kLongestLine) return;
      consume(partial_);
      partial_.clear();
      is_skipping_ = true;
      return;
    }
    if (!is_skipping_ && partial_.size() <= kLongestLine) visit(partial_, offset_);
    consume(is_skipping_ ? line : std::string_view(partial_));
    consume("\n");
    partial_.clear();
    is_skipping_ = false;
  }
}

LineTail::Change LineTail::poll(size_t most_bytes, const std::function<void()>& start_anew,
                                const Visit& visit) {
  const Descriptor file(open_regular(path_));
  struct stat info {};
  is_behind_ = false;
  Change change = Change::kNone;
  const bool is_there = file.fd() >= 0 && ::fstat(file.fd(), &info) == 0;
  const auto size = static_cast<uint64_t>(is_there ? info.st_size : 0);
  if (inode_ != 0 && (!is_there || !is_same_file(file.fd(), info.st_dev, info.st_ino, size))) {
    change = Change::kStartedAnew;
    forget();
    start_anew();
  }
  device_ = info.st_dev;
  inode_ = info.st_ino;
  size_bytes_ = size;
  if (!is_there) return change;
  // The bytes of an incomplete line are read again, because a resumed run cuts them off and writes others.
  partial_.clear();
  const uint64_t begin = offset_;
  while (position_bytes() < size) {
    const uint64_t at = position_bytes();
    if (at - begin >= most_bytes && offset_ > begin) {
      is_behind_ = true;
      break;
    }
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(kBlock, size - at));
    const std::string block = read_at(file.fd(), at, wanted);
    if (block.empty()) break;
    take(block, visit);
  }
  return change;
}

}  // namespace ingot
