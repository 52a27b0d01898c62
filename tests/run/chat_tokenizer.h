// A small tokenizer with ChatML's tokens and template.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

// Writes it into a folder, which is made, with the files that transformers keeps in one.
inline void write_chat_tokenizer(const std::filesystem::path& folder) {
  const std::vector<std::string_view> texts = {"the cat sat on a mat. the dog ran. who ran? a dog."};
  const auto tokenizer = train_bpe(
      texts, {.vocab_size = 290, .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}});
  make_folders(folder);
  write_file(folder / "tokenizer.json", tokenizer->to_json());
  TokenizerSideFiles side;
  side.chat_jinja = read_file(std::filesystem::path(INGOT_TEST_DATA) / "chat/chatml.jinja");
  side.tokens = {{"eos_token", "<|im_end|>"}};
  write_side_files(side, folder);
}

}  // namespace ingot
