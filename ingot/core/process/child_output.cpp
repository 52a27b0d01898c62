#include "ingot/core/process/child_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "ingot/core/process/child_program.h"

namespace ingot {
namespace {

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

bool read_output(const std::vector<std::string>& arguments, bool drops_errors,
                 const std::function<bool(std::string_view)>& take) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  const Descriptor from(ends[0]), none(::open("/dev/null", O_RDWR | O_CLOEXEC));
  Descriptor to(ends[1]);
  ChildProgram child(
      arguments,
      {.input = none.get(), .output = to.get(), .errors = drops_errors ? none.get() : STDERR_FILENO});
  to.close();
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = ::read(from.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || (n > 0 && !take({buffer.data(), static_cast<size_t>(n)}))) return false;
    if (n == 0) return child.wait() == 0;
  }
}

}  // namespace

bool read_output(const std::vector<std::string>& arguments,
                 const std::function<bool(std::string_view)>& take) {
  return read_output(arguments, false, take);
}

std::optional<std::string> program_output(const std::vector<std::string>& arguments, size_t max_bytes) {
  std::vector<std::string> words{"env", "-C", "/", "LC_ALL=C"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::string output;
  const bool is_whole = read_output(words, true, [&](std::string_view bytes) {
    output += bytes;
    return output.size() <= max_bytes;
  });
  return is_whole ? std::optional(output) : std::nullopt;
}

}  // namespace ingot
