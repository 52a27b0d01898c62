// Where output goes. The file that a path names is replaced as a whole; a device, a FIFO, a socket and an
// open descriptor (/dev/stdout) are never replaced, but written to.
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

// What a path given for output names, once links are followed.
struct OutputPlace {
  enum class Kind {
    kNew,         // nothing yet
    kFile,        // a regular file, which may be replaced
    kDirect,      // a device, FIFO or socket
    kDescriptor,  // a descriptor that this process has open
  };
  Kind kind = Kind::kNew;
  std::filesystem::path path;  // no link itself
  int descriptor = -1;         // kDescriptor
  mode_t mode = 0;             // kFile: its permissions
  uid_t owner = 0;             // kFile
  gid_t group = 0;             // kFile

  bool is_written_through() const { return kind == Kind::kDirect || kind == Kind::kDescriptor; }
};

// kDisk error that names the path for a loop of links, a folder, a file or folder without permission to
// write.
OutputPlace find_output(const std::filesystem::path& path);

// The path that a link, and the links that it leads to, point at; other paths as they are. kDisk error for a
// loop.
std::filesystem::path follow_links(const std::filesystem::path& path);

// Opens what is_written_through() says: nothing is cut off, and a FIFO waits for its reader. Returns a
// descriptor that the caller closes. kDisk error naming the path if that fails.
int open_through(const OutputPlace& place);

// A file that takes the place of the one at its path only when it is complete: a temporary file beside it
// (PATH.tmp.PID, in the folder where a link leads), then fsync, rename, fsync of the folder. The permissions
// of a replaced file stay, and so does its owner where that is allowed. What cannot be replaced
// (OutputPlace) gets all bytes at commit(). kDisk errors name the path.
class ReplacedFile {
 public:
  explicit ReplacedFile(const std::filesystem::path& path);
  ~ReplacedFile();  // without commit() the path is as it was, and nothing else is left
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  void write(std::span<const std::byte> bytes);  // appends
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Overwrites. REQUIRES: the range has been written.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  void put(uint64_t offset, std::span<const std::byte> bytes);
  void copy_through();

  OutputPlace place_;
  std::filesystem::path temporary_;  // empty: what is written is collected in memory
  int fd_ = -1;                      // open on the temporary file or memory
  int through_ = -1;                 // what gets the bytes at commit()
  uint64_t written_bytes_ = 0;
};

// A log to append to: made if absent; a link leads to the file that it points at. A write to a FIFO never
// waits. kDisk error as above. The caller closes it.
std::FILE* open_log(const std::filesystem::path& path);

// The files and folders NAME.tmp.PID in a folder whose process is gone, for the caller to remove; those with
// this process's number too, as the system gives numbers again. None where the folder cannot be read.
std::vector<std::filesystem::path> dead_temporaries(const std::filesystem::path& folder);

}  // namespace ingot
