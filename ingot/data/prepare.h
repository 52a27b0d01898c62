// `ingot data prepare`: text of any size to a prepared folder (dataset_folder.h), in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/dataset_folder.h"

namespace ingot {

struct PrepareOptions {
  std::vector<std::string> data;
  std::string tokenizer;  // a file or folder, or bpe, byte, char: trained on the text as data.tokenizer is
  int64_t tokenizer_vocab = 4096;            // for a bpe trained here
  std::string tokenizer_pattern = "cl100k";  // for a bpe trained here
  double val_fraction = 0.1;
  std::string text_field = "text";
  int64_t shard_tokens = 100'000'000;
  std::string dtype = "auto";  // auto | uint16 | uint32
  std::filesystem::path out;   // a new folder
};

// What is being done and how far it is: bytes of the input, of how many.
using PrepareProgress = std::function<void(std::string_view phase, int64_t done, int64_t total)>;

// Writes train_000001.bin ..., val_000000.bin ..., tokenizer.json and dataset.json to options.out, which
// appears whole or not at all. Reads the text twice: to count and check it, then to tokenize it; a trained
// bpe or char tokenizer reads it once more. Besides the tokenizer it holds some batches of kBatchBytes, but a
// text without any place to cut is held whole (Tokenizer::find_cut). The tokens are those of load_split() and
// tokenize(). Errors as theirs, ShardWriter's and StagedFolder's.
Dataset prepare_dataset(const PrepareOptions& options, const PrepareProgress& progress = {});

}  // namespace ingot
