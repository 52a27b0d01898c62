#include "ingot/core/finite.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Returns the words as bytes of a 16- or 32-bit dtype, after `shift` bytes that make them unaligned.
std::vector<std::byte> bytes_of(const std::vector<uint32_t>& words, size_t word_bytes, size_t shift) {
  std::vector<std::byte> bytes(shift + words.size() * word_bytes);
  for (size_t i = 0; i < words.size(); ++i)
    std::memcpy(bytes.data() + shift + i * word_bytes, &words[i], word_bytes);
  return bytes;
}

// Tries places throughout a tensor that spans several blocks, with NaNs of either sign and with infinities.
TEST(Finite, FindsTheFirstNonFiniteElementAtAnyIndex) {
  struct Case {
    DType dtype;
    size_t word_bytes;
    uint32_t largest;
    std::vector<uint32_t> bad;
  };
  const Case cases[] = {
      {DType::f32, 4, 0xff7fffff, {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001, 0x7f800001}},
      {DType::bf16, 2, 0xff7f, {0x7f80, 0xff80, 0x7fc0, 0x7f81}},
      {DType::f16, 2, 0xfbff, {0x7c00, 0xfc00, 0x7e00, 0x7c01}}};
  for (const Case& c : cases)
    for (const size_t shift : {0u, 1u}) {
      std::vector<uint32_t> words(9001, c.largest);
      std::vector<std::byte> bytes = bytes_of(words, c.word_bytes, shift);
      EXPECT_EQ(first_not_finite(c.dtype, std::span(bytes).subspan(shift)), std::nullopt);
      size_t next_bad = 0;
      for (const size_t place : {0u, 1u, 4095u, 4096u, 5000u, 8191u, 9000u}) {
        words[place] = c.bad[next_bad++ % c.bad.size()];
        bytes = bytes_of(words, c.word_bytes, shift);
        EXPECT_EQ(first_not_finite(c.dtype, std::span(bytes).subspan(shift)), static_cast<int64_t>(place))
            << name(c.dtype);
        words[place] = c.largest;
      }
    }
}

TEST(Finite, IntegersAreAlwaysFinite) {
  const std::vector<std::byte> ones(64, std::byte{0xff});
  for (const DType dtype : {DType::u8, DType::u16, DType::u32, DType::i32, DType::i64})
    EXPECT_EQ(first_not_finite(dtype, ones), std::nullopt) << name(dtype);
  EXPECT_EQ(first_not_finite(DType::f32, {}), std::nullopt);
}

TEST(Finite, FindsTheFirstNonFiniteDouble) {
  const double numbers[] = {0, std::numeric_limits<double>::max(), -std::numeric_limits<double>::infinity()};
  EXPECT_EQ(first_not_finite(DType::f64, std::as_bytes(std::span(numbers))), 2);
  EXPECT_EQ(first_not_finite(DType::f64, std::as_bytes(std::span(numbers).first(2))), std::nullopt);
}

TEST(Finite, TheErrorNamesFileTensorElementAndValue) {
  const std::pair<float, const char*> cases[] = {
      {std::nanf(""), "element 102 is nan"}, {kInf, "element 102 is inf"}, {-kInf, "element 102 is -inf"}};
  for (const auto& [value, text] : cases) {
    const float numbers[] = {0, 1, value, 3};
    EXPECT_EQ(error_of(
                  [&] {
                    require_finite("model.safetensors", "wte.weight", DType::f32, 100,
                                   std::as_bytes(std::span(numbers)));
                  },
                  ErrorKind::kNumerics),
              (std::string("model.safetensors: tensor wte.weight, ") + text).c_str());
  }
  const uint16_t half_inf[] = {0xfc00};
  EXPECT_THAT([&] { require_finite("f", "t", DType::f16, 0, std::as_bytes(std::span(half_inf))); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("-inf")));
}

}  // namespace
}  // namespace ingot
