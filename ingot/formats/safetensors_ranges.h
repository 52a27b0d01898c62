// A safetensors file that several processes write at once, each the ranges of the tensors that it has; byte
// for byte what write_safetensors would make of the whole tensors.
//
// One process: create. All: open, write, close. One: verify, which reads the file back once: its hash, and
// whether every element is there as it was written. For that, a process adds up over its elements a hash of
// (index, bits), modulo 2^64: the sums of all processes together are those of the whole tensors, whoever
// wrote what, exactly if every element was written once.
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
  // The same tensors in every process; their bytes and streams are not looked at. Nothing is touched yet.
  SafetensorsRanges(std::filesystem::path path, std::span<const SafetensorsSource> tensors);

  void create() const;  // kDisk error where there is no space
  void open();
  // Elements from `element` on of a tensor, by its place in the constructor's list. kNumerics error naming
  // the tensor and the element for a number that is not finite. REQUIRES: they lie in it.
  void write(size_t tensor, int64_t element, std::span<const std::byte> bytes);
  // Flushes to the disk. The sums, one per tensor.
  const std::vector<uint64_t>& close();

  // sums: of all processes, added up. Returns the file's XXH3-64. kDisk error naming the tensor that is not
  // what was written.
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
