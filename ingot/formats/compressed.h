// Reads gzip (RFC 1952) and zstd (RFC 8878) files as streams, in bounded memory: a file that unpacks to more
// than any memory holds is read a block at a time. Concatenated members or frames are one stream, as gzip -c
// and pzstd write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ingot/core/file.h"

namespace ingot {

enum class Compression { kNone, kGzip, kZstd };

// Detects the compression of a file from its first bytes.
Compression compression_of(std::string_view bytes);

// Returns true if the file is named as gzip or zstd files are: .gz, .tgz, .zst, .zstd.
bool has_compressed_name(const std::filesystem::path& path);
// Returns the name of what such a file holds: "a.jsonl" for "a.jsonl.gz", "a.tar" for "a.tgz"; other names
// unchanged.
std::filesystem::path name_inside(const std::filesystem::path& path);

// kData error if the name of a file says that it is compressed and its first bytes do not.
void check_compressed_name(const std::filesystem::path& path, std::string_view bytes);

// The stream of one compressed file. Not thread-safe.
class Decompressor {
 public:
  // `label` names the file in errors. `bytes` is the whole compressed file and must outlive this object.
  // kUsage error if the program was built without the library that this compression needs.
  Decompressor(std::string_view bytes, std::string label);
  ~Decompressor();
  Decompressor(Decompressor&&) noexcept;

  // Fills `out` with the next bytes; fewer than out.size() only at the end. kData error, with the position in
  // the compressed and in the unpacked data, if the file is damaged, cut off, or followed by something else.
  size_t read(std::span<char> out);
  // Bytes of the compressed file that have been used.
  size_t position() const;

 private:
  class Codec;
  class GzipCodec;
  class ZstdCodec;
  std::unique_ptr<Codec> codec_;
};

}  // namespace ingot
