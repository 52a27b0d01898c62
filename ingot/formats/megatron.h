// Megatron-LM's indexed data sets: NAME.bin holds token ids and nothing else, NAME.idx says what they are.
//
// NAME.idx, little-endian (megatron/core/datasets/indexed_dataset.py): "MMIDIDX\0\0", uint64 version 1, uint8
// code of the dtype, uint64 number of sequences S, uint64 number D of document indices, S int32 lengths in
// tokens, S int64 positions in bytes in NAME.bin, D int64 indices of the sequences where documents begin, of
// which the last is S. In multimodal data sets, S int8 modes follow; Ingot refuses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "ingot/core/file.h"

namespace ingot {

// The codes of token dtypes: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16. Codes 6 and 7 are floats.
enum class MegatronType : uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

int64_t size_bytes(MegatronType type);

struct MegatronIndex {
  MegatronType type = MegatronType::kI32;
  int64_t tokens = 0;
  std::vector<int64_t> document_begins;  // ascending positions in tokens, of documents that are not empty
};

// Parses and checks an index. A kData error names `file`, the found and the expected value: another magic,
// version or dtype, a size that does not fit the counts, sequences that do not follow each other, or indices
// out of order.
MegatronIndex parse_megatron_index(std::span<const std::byte> bytes, std::string_view file);

// NAME.bin, mapped, with its index. Thread-safe for reading.
class MegatronShard {
 public:
  // path: NAME.bin. kData errors as for MappedFile and parse_megatron_index, and if the two files do not fit.
  explicit MegatronShard(const std::filesystem::path& path);

  // Returns NAME.idx for NAME.bin.
  static std::filesystem::path index_path(std::filesystem::path path) {
    return path.replace_extension(".idx");
  }

  const std::filesystem::path& path() const { return file_.path(); }
  int64_t tokens() const { return index_.tokens; }
  const std::vector<int64_t>& document_begins() const { return index_.document_begins; }
  // out[i] = token begin + i. kData error for a negative id or one beyond uint32. REQUIRES: [begin, begin +
  // out.size()) lies in [0, tokens()).
  void read(int64_t begin, std::span<uint32_t> out) const;
  // As TokenShard::release.
  void release() const;

 private:
  MappedFile file_;
  MegatronIndex index_;
};

}  // namespace ingot
