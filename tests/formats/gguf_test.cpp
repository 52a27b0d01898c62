#include "ingot/formats/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {
namespace fs = std::filesystem;

// Written by the package gguf (tools/make_gguf_golden.py).
fs::path golden_gguf(const std::string& name) {
  return fs::path(INGOT_TEST_DATA) / "formats" / "gguf" / name;
}

std::vector<float> golden_numbers(float limit) {
  const std::string bytes = read_file(golden_gguf("numbers.f32"));
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  for (float& x : numbers) x = std::min(std::max(x, -limit), limit);
  return numbers;
}

TEST(Gguf, NumbersEqualThoseOfThePackageBitByBit) {
  const std::vector<float> numbers = golden_numbers(6e4f);
  for (const auto& [type, name] :
       {std::pair(GgufType::kQ8_0, "numbers.q8_0"), std::pair(GgufType::kBf16, "numbers.bf16"),
        std::pair(GgufType::kF16, "numbers.f16")}) {
    std::string bytes;
    append_gguf_numbers(type, numbers, bytes);
    EXPECT_TRUE(bytes == read_file(golden_gguf(name))) << name;
  }
}

// The numbers of the types are those of ggml's docs/gguf.md. The package's file has no array of floats.
TEST(Gguf, KeysHaveTheirTypes) {
  const auto bytes_of = [](auto value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  };
  const auto key = [&](uint32_t type) { return bytes_of(uint64_t{1}) + "k" + bytes_of(type); };
  const auto array = [&](uint32_t type, uint64_t count) { return key(9) + bytes_of(type) + bytes_of(count); };
  const auto added = [](const auto& value) {
    GgufMetadata metadata;
    metadata.add("k", value);
    EXPECT_EQ(metadata.count(), 1u);
    return metadata.bytes();
  };
  EXPECT_EQ(added(uint32_t{7}), key(4) + bytes_of(uint32_t{7}));
  EXPECT_EQ(added(0.5f), key(6) + bytes_of(0.5f));
  EXPECT_EQ(added(std::string_view("ab")), key(8) + bytes_of(uint64_t{2}) + "ab");
  EXPECT_EQ(added(std::vector<int32_t>{-1, 2}), array(5, 2) + bytes_of(int32_t{-1}) + bytes_of(int32_t{2}));
  EXPECT_EQ(added(std::vector<float>{0.5f}), array(6, 1) + bytes_of(0.5f));
  EXPECT_EQ(added(std::vector<std::string>{"c"}), array(8, 1) + bytes_of(uint64_t{1}) + "c");
  for (const bool flag : {false, true}) {
    GgufMetadata metadata;
    metadata.add_flag("k", flag);
    EXPECT_EQ(metadata.bytes(), key(7) + std::string(1, flag ? '\1' : '\0'));
  }
}

TEST(Gguf, FileEqualsThatOfThePackage) {
  GgufMetadata metadata;
  metadata.add("general.architecture", std::string_view("llama"));
  metadata.add("llama.block_count", uint32_t{3});
  metadata.add("llama.rope.freq_base", 10000.0f);
  metadata.add_flag("tokenizer.ggml.add_bos_token", false);
  metadata.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "\u0120b", ""});
  metadata.add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 3});
  const std::vector<float> numbers = golden_numbers(1e30f);
  const std::vector<GgufTensor> tensors = {
      {"token_embd.weight",
       {3, 2},
       GgufType::kF32,
       [](int64_t begin, int64_t rows, float* out) {
         for (int64_t i = 0; i < 2 * rows; ++i) out[i] = static_cast<float>(2 * begin + i);
       }},
      {"output_norm.weight", {2}, GgufType::kF32, [](int64_t, int64_t, float* out) { out[0] = out[1] = 1; }},
      {"blk.0.attn_q.weight", {2, 32}, GgufType::kQ8_0, [&](int64_t begin, int64_t rows, float* out) {
         std::copy_n(numbers.data() + 32 * begin, 32 * rows, out);
       }}};
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "small.gguf";
  write_gguf(path, metadata, tensors);
  const std::string written = read_file(path);
  EXPECT_EQ(written.size(), gguf_file_bytes(metadata, tensors));
  EXPECT_TRUE(written == read_file(golden_gguf("small.gguf")));
}

}  // namespace
}  // namespace ingot::test
