// Files: mapped for reading, committed durably for writing. Every error names the path and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct MappedRange;  // core/shrunken_file.h

// A regular file mapped read-only. kData error if it is missing, unreadable or not a regular file. If it
// becomes shorter while it is mapped, reading beyond its end is a SIGBUS, which core/shrunken_file.h
// explains.
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

// The whole file. kData error as above.
std::string read_file(const std::filesystem::path& path);

// True if the path, its links followed, names something. kData error if that cannot be told: a loop of links,
// a folder without permission.
bool path_exists(const std::filesystem::path& path);

// A file being written in place: append, then close(), which flushes to the disk (fsync). A file that is not
// closed is removed. A link leads to its target; a device, FIFO or socket is written to and never removed.
// ReplacedFile (core/output.h) is the one for a path that a user gives. Errors (full disk, no permission) are
// of kind kDisk and name the path.
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
  bool is_through_ = false;  // no regular file
  int fd_ = -1;
  uint64_t written_bytes_ = 0;
};

// A file of a known size that several processes fill, each with its own ranges. kDisk errors name the path.
class RangeFile {
 public:
  // A file of zeros, for which the space is taken where the file system can. One process, before any opens
  // it. What is there already must be a regular file, and no link.
  static void create(const std::filesystem::path& path, uint64_t file_bytes);

  explicit RangeFile(const std::filesystem::path& path);
  ~RangeFile();
  RangeFile(const RangeFile&) = delete;
  RangeFile& operator=(const RangeFile&) = delete;

  // Ranges that follow each other are put to the disk as one.
  void write(uint64_t offset, std::span<const std::byte> bytes);
  void close();  // flushes to the disk

 private:
  void flush();

  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t begin_ = 0;  // of what waits
  std::vector<std::byte> waiting_;
};

// Replaces the file at path by the text in one step, as ReplacedFile (core/output.h) says: a link's target is
// what is replaced; a device, FIFO or open descriptor (/dev/null, /dev/stdout) gets the text and stays.
void write_file(const std::filesystem::path& path, std::string_view text);

// Flushes a folder's entries to the disk.
void sync_folder(const std::filesystem::path& folder);

// Makes the folder and its parents; kDisk error naming the first that cannot be made.
void make_folders(const std::filesystem::path& folder);

}  // namespace ingot
