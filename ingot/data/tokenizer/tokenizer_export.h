// Writes a tokenizer in the formats of other programs.
#pragma once

#include <filesystem>

#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

enum class TokenizerFormat {
  kJson,      // one tokenizer.json
  kFolder,    // tokenizer.json, vocab.json + merges.txt, tokenizer_config.json, special_tokens_map.json
  kGpt2,      // a folder with encoder.json + vocab.bpe
  kTiktoken,  // one .tiktoken file; it does not hold special tokens
};

// Writes the tokenizer. Each file replaces its predecessor atomically; folders are created. kData error
// if the format cannot hold the tokenizer: kGpt2 and kTiktoken need byte-level BPE, and kTiktoken also
// needs ids in the order of the merges.
void export_tokenizer(const Tokenizer& tokenizer, TokenizerFormat format, const std::filesystem::path& out);

}  // namespace ingot
