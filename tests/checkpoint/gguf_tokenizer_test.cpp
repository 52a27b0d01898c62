// The name by which llama.cpp knows how a tokenizer splits text, for tokenizer.json files of the families.
#include "ingot/checkpoint/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "tests/reference/error_of.h"

namespace ingot {
namespace {

// Returns the metadata of the family's tokenizer, or the error.
std::string metadata_of(const std::string& family) {
  const std::filesystem::path folder = std::filesystem::path(INGOT_TEST_DATA) / "tokenizer" / "families";
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder / (family + ".json"));
  GgufMetadata metadata;
  const std::string error = data_error(
      [&] { add_gguf_tokenizer(metadata, *tokenizer, static_cast<int64_t>(tokenizer->vocab_size())); });
  return error == "no error" ? metadata.bytes() : error;
}

// A string in a GGUF file is its length (u64) and its bytes; its type is 8.
std::string gguf_string(const std::string& text) {
  return std::string{static_cast<char>(text.size())} + std::string(7, '\0') + text;
}

TEST(GgufTokenizer, NamesTheSplitThatLlamaCppKnows) {
  for (const auto& [family, pre] : {std::pair{"smollm", "smollm"},
                                    {"deepseek3", "deepseek-v3"},
                                    {"qwen2", "qwen2"},
                                    {"llama3", "smaug-bpe"},  // its file lacks ignore_merges
                                    {"neox", "gpt-2"}}) {
    const std::string entry =
        gguf_string("tokenizer.ggml.pre") + std::string("\x8\0\0\0", 4) + gguf_string(pre);
    EXPECT_TRUE(metadata_of(family).find(entry) != std::string::npos) << family;
  }
}

TEST(GgufTokenizer, OtherSplitsAreRefused) {
  for (const char* family : {"deepseek_coder", "falcon", "gpt2_prefix"})
    EXPECT_TRUE(metadata_of(family).find("llama.cpp does not split text as it does") != std::string::npos)
        << family;
}

}  // namespace
}  // namespace ingot
