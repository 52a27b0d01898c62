// Files: mapped for reading, written durably. Every error names the path and says what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct MappedRange;  // core/process/shrunken_file.h

// A regular file mapped read-only. kData error if it is missing, unreadable or not a regular file. If the
// file shrinks while it is mapped, a read beyond its end raises SIGBUS; core/process/shrunken_file.h turns
// that into a clear message.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  size_t size_bytes() const { return size_bytes_; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_bytes_}; }
  std::string_view text() const { return {static_cast<const char*>(data_), size_bytes_}; }

 private:
  std::filesystem::path path_;
  const void* data_ = nullptr;
  size_t size_bytes_ = 0;
  MappedRange* range_ = nullptr;
};

// Returns the whole file. kData errors as for MappedFile.
std::string read_file(const std::filesystem::path& path);

// Returns true if the path, after following links, names something. kData error if that cannot be found
// out (a loop of links, a folder without permission).
bool path_exists(const std::filesystem::path& path);

// A file written in place: write() appends, and close() flushes to the disk (fsync). A file that is not
// closed is removed. A link is followed to its target; a device, FIFO or socket is written to and never
// removed. For a path that a user gives, use ReplacedFile (core/output.h) instead. Errors (full disk, no
// permission) are of kind kDisk and name the path.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void close();
  uint64_t written_bytes() const { return written_bytes_; }

 private:
  void discard();

  std::filesystem::path path_;
  bool is_through_ = false;  // true for a device, FIFO, socket or descriptor
  int fd_ = -1;
  uint64_t written_bytes_ = 0;
};

// A file of known size that several processes fill, each with its own ranges. kDisk errors name the path.
class RangeFile {
 public:
  // Creates a file of zeros and reserves its disk space if the file system can. One process calls it,
  // before any process opens the file. An existing file at the path must be a regular file, not a link.
  static void create(const std::filesystem::path& path, uint64_t file_bytes);

  explicit RangeFile(const std::filesystem::path& path);
  ~RangeFile();
  RangeFile(const RangeFile&) = delete;
  RangeFile& operator=(const RangeFile&) = delete;

  // Writes are buffered; consecutive ranges reach the disk in one call.
  void write(uint64_t offset, std::span<const std::byte> bytes);
  void close();  // flushes to the disk

 private:
  void flush();

  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t begin_ = 0;  // file offset of waiting_
  std::vector<std::byte> waiting_;
};

// Replaces the file at path by the text in one step, as ReplacedFile (core/output.h) does: if the path is a
// link, its target is replaced; a device, FIFO or open descriptor (/dev/null, /dev/stdout) is written to.
void write_file(const std::filesystem::path& path, std::string_view text);

// Flushes a folder's entries to the disk (fsync).
void sync_folder(const std::filesystem::path& folder);

// Returns $XDG_CACHE_HOME/ingot, or else $HOME/.cache/ingot; empty if neither variable is set.
std::filesystem::path cache_folder();

// Creates the folder and its parents. A kDisk error names the first folder that cannot be created.
void make_folders(const std::filesystem::path& folder);

}  // namespace ingot
