// LineTail follows a file to which lines are appended, as a run appends to metrics.jsonl.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace ingot {

// Opens a regular file for reading; -1 if the path is anything else, a link too, or cannot be read. A link in
// a run's folder could lead to a file that does not belong to the run.
int open_regular(const std::filesystem::path& path);

// Returns at most `most_bytes` of the regular file; empty if open_regular refuses it.
std::string read_regular(const std::filesystem::path& path, size_t most_bytes);

// Calls visit(line without its newline) for the complete lines from the offset on, until visit returns false
// or `most_bytes` were read.
void read_lines(const std::filesystem::path& path, uint64_t offset, size_t most_bytes,
                const std::function<bool(std::string_view line)>& visit);

class LineTail {
 public:
  static constexpr size_t kLongestLine = size_t{1} << 20;  // longer lines are skipped

  explicit LineTail(std::filesystem::path path) : path_(std::move(path)) {}

  // A change of the file that poll() found, other than new lines.
  enum class Change {
    kNone,
    kStartedAnew,  // the file is another one, is shorter, or has gone; the next lines are its first ones
  };
  using Visit = std::function<void(std::string_view line, uint64_t offset)>;

  // Reads at most `most_bytes` that were appended since the last call, and calls visit(line without its
  // newline, its offset in the file) for every line that is complete. A file that shrank, was replaced by
  // another or whose last bytes have changed is read from its start again: `start_anew` is called before its
  // first line.
  Change poll(size_t most_bytes, const std::function<void()>& start_anew, const Visit& visit);

  // True if the last poll() stopped at its limit before the file's end.
  bool is_behind() const { return is_behind_; }
  // Bytes that were read, and the file's size at the last poll().
  uint64_t position_bytes() const { return offset_ + partial_.size(); }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  bool is_same_file(int fd, dev_t device, ino_t inode, uint64_t size_bytes) const;
  void forget();
  void consume(std::string_view bytes);
  void take(std::string_view bytes, const Visit& visit);

  std::filesystem::path path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  uint64_t offset_ = 0;       // of the first byte that belongs to no complete line yet
  uint64_t size_bytes_ = 0;   // at the last poll()
  std::string partial_;       // the bytes from offset_ that were read
  std::string last_;          // the bytes before offset_ that tell whether the file is still the same
  bool is_skipping_ = false;  // within a line that is too long
  bool is_behind_ = false;
};

}  // namespace ingot
