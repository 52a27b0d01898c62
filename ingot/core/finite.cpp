#include "ingot/core/finite.h"

#include <algorithm>
#include <cstring>

#include "ingot/core/error.h"

namespace ingot {
namespace {

template <typename Word>
Word word_at(const std::byte* bytes, int64_t i) {
  Word word;
  std::memcpy(&word, bytes + static_cast<size_t>(i) * sizeof word, sizeof word);
  return word;
}

// A number is not finite if all bits of its exponent are set.
template <typename Word>
std::optional<int64_t> first_with_exponent(Word exponent, std::span<const std::byte> bytes) {
  const auto n = static_cast<int64_t>(bytes.size() / sizeof(Word));
  constexpr int64_t kBlock = 4096;  // elements checked without a branch
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    Word found = 0;
    for (int64_t i = begin; i < end; ++i)
      found |= static_cast<Word>((word_at<Word>(bytes.data(), i) & exponent) == exponent);
    for (int64_t i = begin; found && i < end; ++i)
      if ((word_at<Word>(bytes.data(), i) & exponent) == exponent) return i;
  }
  return std::nullopt;
}

// "nan", "inf" or "-inf".
template <typename Word>
const char* text_of(Word word, Word exponent) {
  const auto fraction = static_cast<Word>(exponent & -exponent) - 1;  // the bits below the exponent
  if (word & static_cast<Word>(fraction)) return "nan";
  return word >> (8 * sizeof word - 1) ? "-inf" : "inf";
}

constexpr uint64_t kExponentF64 = 0x7ff0000000000000;
constexpr uint32_t kExponentF32 = 0x7f800000;
constexpr uint16_t kExponentBf16 = 0x7f80, kExponentF16 = 0x7c00;

}  // namespace

std::optional<int64_t> first_not_finite(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::f64) return first_with_exponent(kExponentF64, bytes);
  if (dtype == DType::f32) return first_with_exponent(kExponentF32, bytes);
  if (dtype == DType::bf16) return first_with_exponent(kExponentBf16, bytes);
  if (dtype == DType::f16) return first_with_exponent(kExponentF16, bytes);
  return std::nullopt;
}

void require_finite(std::string_view file, std::string_view tensor, DType dtype, int64_t first_element,
                    std::span<const std::byte> bytes) {
  const std::optional<int64_t> found = first_not_finite(dtype, bytes);
  if (!found) return;
  const char* what = dtype == DType::f64   ? text_of(word_at<uint64_t>(bytes.data(), *found), kExponentF64)
                     : dtype == DType::f32 ? text_of(word_at<uint32_t>(bytes.data(), *found), kExponentF32)
                                           : text_of(word_at<uint16_t>(bytes.data(), *found),
                                                     dtype == DType::bf16 ? kExponentBf16 : kExponentF16);
  fail(ErrorKind::kNumerics, "{}: tensor {}, element {} is {}", file, tensor, first_element + *found, what);
}

}  // namespace ingot
