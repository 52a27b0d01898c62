// Writing a tokenizer for other programs.
#pragma once

#include <filesystem>

#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

enum class TokenizerFormat {
  kJson,      // one tokenizer.json
  kFolder,    // tokenizer.json, vocab.json + merges.txt, tokenizer_config.json, special_tokens_map.json
  kGpt2,      // a folder with encoder.json + vocab.bpe
  kTiktoken,  // one .tiktoken; special tokens are not in it
};

// Each file replaces its predecessor in one step; folders are made. kData error if the format cannot hold
// the tokenizer: vocab and ranks need byte-level BPE, ranks also ids in the order of the merges.
void export_tokenizer(const Tokenizer& tokenizer, TokenizerFormat format, const std::filesystem::path& out);

}  // namespace ingot
