#include "ingot/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ingot/core/error.h"
#include "ingot/core/float16.h"
#include "ingot/core/output.h"

namespace ingot {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kGgufAlignment = 32;
constexpr uint32_t kGgufVersion = 3;
// Types of metadata values.
constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

template <typename Number>
void append_number(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_string(std::string& out, std::string_view text) {
  append_number(out, uint64_t{text.size()});
  out += text;
}

uint64_t aligned(uint64_t bytes) { return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment; }

uint64_t data_bytes(const GgufTensor& tensor) {
  const auto count = static_cast<uint64_t>(tensor.row_count() * tensor.width());
  if (tensor.type == GgufType::kF32) return 4 * count;
  if (tensor.type == GgufType::kQ8_0) return count / kQ8BlockSize * (kQ8BlockSize + 2);
  return 2 * count;
}

std::string gguf_header(const GgufMetadata& metadata, std::span<const GgufTensor> tensors) {
  std::string out = "GGUF";
  append_number(out, kGgufVersion);
  append_number(out, uint64_t{tensors.size()});
  append_number(out, metadata.count());
  out += metadata.bytes();
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    append_string(out, tensor.name);
    append_number(out, static_cast<uint32_t>(tensor.shape.size()));
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim)
      append_number(out, static_cast<uint64_t>(*dim));
    append_number(out, static_cast<uint32_t>(tensor.type));
    append_number(out, offset);
    offset += aligned(data_bytes(tensor));
  }
  out.resize(aligned(out.size()));
  return out;
}

// Half away from zero, computed as the package `gguf` does.
float rounded(float x) {
  const float magnitude = std::fabs(x), low = std::floor(magnitude);
  return std::copysign(low + std::floor(2 * (magnitude - low)), x);
}

void append_q8_block(const float* x, std::string& out) {
  float largest = 0;
  for (int64_t i = 0; i < kQ8BlockSize; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float scale = largest / 127, inverse = scale == 0 ? 0 : 1 / scale;
  append_number(out, f16(scale).bits);
  for (int64_t i = 0; i < kQ8BlockSize; ++i) {
    const float whole = std::clamp(rounded(x[i] * inverse), -128.0f, 127.0f);
    append_number(out, static_cast<int8_t>(whole));
  }
}

}  // namespace

void GgufMetadata::begin(std::string_view key, uint32_t type) {
  append_string(bytes_, key);
  append_number(bytes_, type);
  ++count_;
}
void GgufMetadata::add(std::string_view key, std::string_view text) {
  begin(key, kString);
  append_string(bytes_, text);
}
void GgufMetadata::add(std::string_view key, uint32_t value) {
  begin(key, kUint32);
  append_number(bytes_, value);
}
void GgufMetadata::add(std::string_view key, float value) {
  begin(key, kFloat32);
  append_number(bytes_, value);
}
void GgufMetadata::add_flag(std::string_view key, bool value) {
  begin(key, kBool);
  bytes_.push_back(value ? 1 : 0);
}
void GgufMetadata::add(std::string_view key, const std::vector<std::string>& texts) {
  begin(key, kArray);
  append_number(bytes_, kString);
  append_number(bytes_, uint64_t{texts.size()});
  for (const std::string& text : texts) append_string(bytes_, text);
}
void GgufMetadata::add(std::string_view key, const std::vector<int32_t>& values) {
  begin(key, kArray);
  append_number(bytes_, kInt32);
  append_number(bytes_, uint64_t{values.size()});
  for (const int32_t value : values) append_number(bytes_, value);
}

void GgufMetadata::add(std::string_view key, const std::vector<float>& values) {
  begin(key, kArray);
  append_number(bytes_, kFloat32);
  append_number(bytes_, uint64_t{values.size()});
  for (const float value : values) append_number(bytes_, value);
}

void append_gguf_numbers(GgufType type, std::span<const float> numbers, std::string& out) {
  if (type == GgufType::kQ8_0) {
    INGOT_CHECK(numbers.size() % kQ8BlockSize == 0, "q8_0: {} numbers are no whole blocks", numbers.size());
    for (size_t i = 0; i < numbers.size(); i += kQ8BlockSize) append_q8_block(numbers.data() + i, out);
    return;
  }
  for (const float x : numbers) {
    if (type == GgufType::kF32) {
      append_number(out, x);
    } else if (type == GgufType::kF16) {
      append_number(out, f16(x).bits);
    } else {  // bf16, to nearest even; checkpoints hold no NaN
      const auto bits = std::bit_cast<uint32_t>(x);
      append_number(out, static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16));
    }
  }
}

uint64_t gguf_file_bytes(const GgufMetadata& metadata, std::span<const GgufTensor> tensors) {
  uint64_t bytes = gguf_header(metadata, tensors).size();
  for (const GgufTensor& tensor : tensors) bytes += aligned(data_bytes(tensor));
  return bytes;
}

void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                std::span<const GgufTensor> tensors) {
  ReplacedFile file(path);
  file.write(gguf_header(metadata, tensors));
  std::vector<float> numbers;
  std::string bytes;
  for (const GgufTensor& tensor : tensors) {
    const int64_t step = std::max<int64_t>(1, (int64_t{1} << 18) / tensor.width());
    for (int64_t row = 0; row < tensor.row_count(); row += step) {
      const int64_t rows = std::min(step, tensor.row_count() - row);
      numbers.resize(static_cast<size_t>(rows * tensor.width()));
      tensor.read(row, rows, numbers.data());
      bytes.clear();
      append_gguf_numbers(tensor.type, numbers, bytes);
      file.write(bytes);
    }
    file.write(std::string(aligned(data_bytes(tensor)) - data_bytes(tensor), '\0'));
  }
  file.commit();
}

}  // namespace ingot
