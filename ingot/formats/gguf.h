// GGUF files, version 3 (ggml, docs/gguf.md): a header of typed keys, then a table of tensors, then their
// data, each aligned to 32 bytes. All numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// GgufType is the storage format of a tensor's numbers; the values are ggml's.
enum class GgufType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ8_0 = 8,  // blocks of 32 numbers: a scale in f16 and 32 signed bytes
  kBf16 = 30,
};
inline constexpr int64_t kQ8BlockSize = 32;

// Collects the keys of a file in the order in which they are added.
class GgufMetadata {
 public:
  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add_flag(std::string_view key, bool value);
  void add(std::string_view key, const std::vector<std::string>& texts);
  void add(std::string_view key, const std::vector<int32_t>& values);
  void add(std::string_view key, const std::vector<float>& values);

  const std::string& bytes() const { return bytes_; }
  uint64_t count() const { return count_; }

 private:
  void begin(std::string_view key, uint32_t type);

  std::string bytes_;
  uint64_t count_ = 0;
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // one or two dims, rows first; the file lists them in reverse
  GgufType type = GgufType::kF32;
  // Writes `rows` rows from row `begin` on to `out`, in f32. A vector is one row.
  std::function<void(int64_t begin, int64_t rows, float* out)> read;

  int64_t row_count() const { return shape.size() == 2 ? shape[0] : 1; }
  int64_t width() const { return shape.back(); }
};

// Appends the numbers as the type stores them. q8_0 equals the package `gguf` bit by bit: the scale is the
// largest magnitude / 127, and numbers are rounded half away from zero. REQUIRES: for kQ8_0, whole blocks.
void append_gguf_numbers(GgufType type, std::span<const float> numbers, std::string& out);

// Returns the size of the file that write_gguf() writes.
uint64_t gguf_file_bytes(const GgufMetadata& metadata, std::span<const GgufTensor> tensors);

// Writes the file, which replaces its predecessor only when it is complete (core/output.h). kDisk error if
// writing fails.
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                std::span<const GgufTensor> tensors);

}  // namespace ingot
