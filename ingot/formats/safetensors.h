// safetensors: named tensors in one file (huggingface/safetensors, README "Format"):
//   u64 N, N bytes of JSON header, then the data: row-major, no holes, no overlap, all little-endian.
// The reader trusts nothing: it checks every rule of the format before it returns any data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/core/dtype.h"
#include "ingot/core/file.h"

namespace ingot {

struct SafetensorsEntry {
  std::string name;
  std::string_view dtype_name;       // as in the file ("BF16"); static storage
  std::optional<DType> dtype;        // nullopt if Ingot has no such type: BOOL, I8, F64, F4 ...
  std::vector<int64_t> shape;        // any rank; empty for a scalar
  std::span<const std::byte> bytes;  // borrowed from the file; may be unaligned, so copy with memcpy

  int64_t elements() const;
  std::string shape_text() const;  // "(2, 768)"
};

// A safetensors file, mapped read-only and completely checked. Movable. A kData error names the file, the
// tensor and the broken rule: a header length of 0, over 100 MB or past the end; a header that is not one
// JSON object in UTF-8; a name, key or metadata key given twice; an unknown key or dtype; offsets that
// are not whole numbers, leave a hole, overlap, disagree with the shape or do not end with the file; an
// element count past 2^63; more than kMaxTensors tensors or 64 dims. Time and memory are bounded by the
// header's length.
class SafetensorsFile {
 public:
  static constexpr size_t kMaxTensors = 200'000;

  explicit SafetensorsFile(const std::filesystem::path& path);
  // The same for bytes in memory, which the caller owns and must keep. `label` stands for the path in errors.
  SafetensorsFile(std::span<const std::byte> bytes, const std::string& label);

  const std::string& label() const { return label_; }
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }  // in the order of the data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Returns nullptr if the file has no such tensor.
  const SafetensorsEntry* find(std::string_view name) const;
  // kData error that names the file and the tensor if the file has no such tensor.
  const SafetensorsEntry& get(std::string_view name) const;

 private:
  void parse(std::span<const std::byte> bytes);

  MappedFile file_;
  std::string label_;
  std::vector<SafetensorsEntry> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_
  std::map<std::string, std::string> metadata_;
};

// Receives the next bytes of a tensor.
using ByteSink = std::function<void(std::span<const std::byte>)>;

// A tensor to write: its bytes, or a function that passes them to a sink in several calls (calls of at
// least 64 KiB are fast).
struct SafetensorsSource {
  std::string name = {};
  DType dtype = DType::f32;
  std::vector<int64_t> shape = {};
  std::span<const std::byte> bytes = {};             // borrowed during the call; used if `stream` is empty
  std::function<void(const ByteSink&)> stream = {};  // passes exactly elements * size_bytes(dtype) bytes
};

struct SafetensorsWritten {
  struct TensorHash {
    std::string name;
    uint64_t xxh3_64 = 0;
  };
  uint64_t size_bytes = 0;
  uint64_t xxh3_64 = 0;             // hash of the whole file
  std::vector<TensorHash> tensors;  // in the order of the data
};

// Writes the same bytes as the reference implementation: larger element types come first (in the reverse of
// its order of dtypes), tensors of one type are sorted by name, and the header is padded to 8 bytes. The file
// is flushed to the disk (OutputFile), or removed on any error. kInternal error for a name that is empty, not
// UTF-8 or given twice, a bad shape, or a wrong number of bytes; kDisk error if writing fails.
SafetensorsWritten write_safetensors(const std::filesystem::path& path,
                                     std::span<const SafetensorsSource> tensors,
                                     const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// Computes the layout that write_safetensors would use. Does not read bytes or streams.
struct SafetensorsLayout {
  std::string header;             // the file's first bytes
  std::vector<uint64_t> offsets;  // start of each tensor in the file, in the order given
  uint64_t file_bytes = 0;
};
SafetensorsLayout safetensors_layout(std::span<const SafetensorsSource> tensors,
                                     const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace ingot
