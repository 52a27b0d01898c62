// Output files. A regular file is replaced as a whole; a device, a FIFO, a socket or an open descriptor
// (/dev/stdout) is never replaced but written to.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ingot {

// OutputPlace is the place that an output path names after all links are followed.
struct OutputPlace {
  enum class Kind {
    kNew,         // does not exist yet
    kFile,        // a regular file, which may be replaced
    kDirect,      // a device, FIFO or socket
    kDescriptor,  // a descriptor that is open in this process
  };
  Kind kind = Kind::kNew;
  std::filesystem::path path;  // never a link
  int descriptor = -1;         // for kDescriptor
  mode_t mode = 0;             // permissions, for kFile
  uid_t owner = 0;             // for kFile
  gid_t group = 0;             // for kFile

  bool is_written_through() const { return kind == Kind::kDirect || kind == Kind::kDescriptor; }
};

// kDisk error that names the path if the path is a folder, a loop of links, or a file or folder without
// write permission.
OutputPlace find_output(const std::filesystem::path& path);

// Follows links to their end. Returns a path that is not a link unchanged. kDisk error for a loop of links.
std::filesystem::path follow_links(const std::filesystem::path& path);

// Opens a place for which is_written_through() is true. Nothing is truncated, and a FIFO blocks until it
// has a reader. The caller closes the returned descriptor. On failure a kDisk error names the path.
int open_through(const OutputPlace& place);

// ReplacedFile is a file that replaces the one at its path only when it is complete. The bytes go to a
// temporary file in the same folder (PATH.tmp.PID, in the folder of a link's target); commit() then does
// fsync, rename, and fsync of the folder. The new file has the permissions of the replaced one, and its owner
// if that is allowed. A place that cannot be replaced (OutputPlace) receives all bytes at commit(). kDisk
// errors name the path.
class ReplacedFile {
 public:
  explicit ReplacedFile(const std::filesystem::path& path);
  ~ReplacedFile();  // without commit(), leaves the path unchanged and removes the temporary file
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  void write(std::span<const std::byte> bytes);  // appends
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Overwrites a range. REQUIRES: the range has been written before.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  void put(uint64_t offset, std::span<const std::byte> bytes);
  void copy_through();

  OutputPlace place_;
  std::filesystem::path temporary_;  // empty if the bytes are collected in memory
  int fd_ = -1;                      // the temporary file, or a memory file
  int through_ = -1;                 // where commit() sends the bytes
  uint64_t written_bytes_ = 0;
};

// Opens a log for appending and creates it if it does not exist; a link is followed. Writes to a FIFO
// never block. kDisk errors as above. The caller closes the file.
std::FILE* open_log(const std::filesystem::path& path);

// The files and folders NAME.tmp.PID in a folder whose process no longer exists; the caller removes them.
// Those with this process's own PID are included, because the system reuses PIDs. Empty if the folder
// cannot be read.
std::vector<std::filesystem::path> dead_temporaries(const std::filesystem::path& folder);

}  // namespace ingot
