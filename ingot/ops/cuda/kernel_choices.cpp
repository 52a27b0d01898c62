#include "ingot/ops/cuda/kernel_choices.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "ingot/core/file.h"
#include "ingot/core/median.h"

namespace ingot {
namespace {

// A file that is open and locked, if both were possible. The lock ends with it.
class LockedFile {
 public:
  explicit LockedFile(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0) ::close(std::exchange(fd_, -1));
  }
  ~LockedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  int fd() const { return fd_; }  // -1 if it could not be opened

 private:
  int fd_;
};

std::string read_from(int fd, off_t offset) {
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::pread(fd, part.data(), part.size(), offset + std::ssize(text))) > 0;)
    text.append(part.data(), static_cast<size_t>(n));
  return text;
}

}  // namespace

KernelChoices::KernelChoices(std::filesystem::path file) : file_(std::move(file)) {
  const int fd = file_.empty() ? -1 : ::open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  read_new_lines(fd);
  ::close(fd);
}

KernelChoices& KernelChoices::named(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<KernelChoices>> all;
  const std::lock_guard lock(mutex);
  std::unique_ptr<KernelChoices>& place = all[name];
  const std::filesystem::path folder = cache_folder();
  if (!place) place = std::make_unique<KernelChoices>(folder.empty() ? folder : folder / name);
  return *place;
}

std::optional<std::string> KernelChoices::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = choices_.find(key);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

std::string KernelChoices::keep(const std::string& key, const std::string& choice) {
  const std::lock_guard lock(mutex_);
  if (!file_.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(file_.parent_path(), ignored);
    const LockedFile file(file_);
    if (file.fd() >= 0) read_new_lines(file.fd());
    if (file.fd() >= 0 && !choices_.contains(key)) {
      const std::string line = key + " " + choice + "\n";
      // A line that a process did not finish is overwritten.
      const bool is_written = ::ftruncate(file.fd(), read_bytes_) == 0 &&
                              ::pwrite(file.fd(), line.data(), line.size(), read_bytes_) == std::ssize(line);
      if (is_written) read_bytes_ += std::ssize(line);
    }
  }
  return choices_.emplace(key, choice).first->second;
}

void KernelChoices::read_new_lines(int fd) {
  const std::string text = read_from(fd, read_bytes_);
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const size_t space = line.find(' ');
    if (space != std::string::npos) choices_.emplace(line.substr(0, space), line.substr(space + 1));
  }
  read_bytes_ += static_cast<off_t>(begin);
}

size_t least_median(const std::vector<std::vector<double>>& times_s) {
  std::vector<double> medians;
  for (const std::vector<double>& times : times_s) medians.push_back(median(times));
  return static_cast<size_t>(std::ranges::min_element(medians) - medians.begin());
}

}  // namespace ingot
