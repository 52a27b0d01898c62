// Shared by the reader and the writer of safetensors. Internal to ingot/formats/safetensors*.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ingot/core/dtype.h"

namespace ingot::safetensors_detail {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

struct FileDType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;
};

// In the order of the reference implementation. A file holds its tensors in the reverse of this order.
inline constexpr std::array<FileDType, 22> kFileDTypes{{
    {"BOOL", 8, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, DType::u8},
    {"I8", 8, {}},
    {"F8_E5M2", 8, DType::f8e5m2},
    {"F8_E4M3", 8, DType::f8e4m3},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, DType::u16},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"U32", 32, DType::u32},
    {"F32", 32, DType::f32},
    {"C64", 64, {}},
    {"F64", 64, {}},
    {"I64", 64, DType::i64},
    {"U64", 64, {}},
}};

// Returns the size of a tensor in bytes, or nullopt if it overflows or is not a whole number of bytes.
inline std::optional<uint64_t> tensor_bytes(std::span<const int64_t> shape, uint64_t bits_per_element) {
  int64_t elements = 1;
  for (const int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements)) return std::nullopt;
  uint64_t bits = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(elements), bits_per_element, &bits) || bits % 8 != 0)
    return std::nullopt;
  return bits / 8;
}

inline std::string dims_text(std::span<const int64_t> dims, std::string_view separator = ", ") {
  std::string text;
  for (const int64_t dim : dims) {
    if (!text.empty()) text += separator;
    text += std::to_string(dim);
  }
  return text;
}

}  // namespace ingot::safetensors_detail
