// Writes a safetensors file from several processes at once; each writes the ranges of tensors that it has.
// The result is byte for byte what write_safetensors would write for the whole tensors.
//
// One process calls create; then all processes open, write and close; then one process calls verify,
// which reads the file back once, returns its hash, and checks that every element is as it was written.
// For this check each process sums a hash of (index, bits) over its elements, modulo 2^64. The sum over
// all processes equals that of the whole tensors, whichever process wrote which element, if every element
// was written exactly once.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/formats/safetensors.h"

namespace ingot {

class SafetensorsRanges {
 public:
  // REQUIRES: every process passes the same tensors. Their bytes and streams are not used. Touches no file.
  SafetensorsRanges(std::filesystem::path path, std::span<const SafetensorsSource> tensors);

  void create() const;  // kDisk error if there is no space
  void open();
  // Writes elements of a tensor, from index `element` on. `tensor` is an index into the constructor's
  // list. kNumerics error that names the tensor and the element if a number is not finite. REQUIRES: the
  // elements lie within the tensor.
  void write(size_t tensor, int64_t element, std::span<const std::byte> bytes);
  // Flushes to the disk. Returns this process's sums, one per tensor.
  const std::vector<uint64_t>& close();

  // sums: the sums of all processes, added up. Returns the file's XXH3-64. kDisk error that names a
  // tensor whose data differs from what was written.
  uint64_t verify(std::span<const uint64_t> sums) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Place {
    std::string name;
    DType dtype = DType::f32;
    uint64_t offset = 0;  // in the file
    int64_t elements = 0;
    size_t element_bytes = 0;

    uint64_t end() const { return offset + static_cast<uint64_t>(elements) * element_bytes; }
  };

  std::filesystem::path path_;
  std::string file_name_;
  SafetensorsLayout layout_;
  std::vector<Place> tensors_;
  std::vector<uint64_t> sums_;
  std::unique_ptr<RangeFile> file_;
};

}  // namespace ingot
