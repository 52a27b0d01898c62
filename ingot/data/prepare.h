// `ingot data prepare` turns text of any size into a prepared folder (dataset_folder.h), in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/corpus_tokenizer.h"
#include "ingot/data/dataset_folder.h"

namespace ingot {

struct PrepareOptions {
  std::vector<std::string> data;
  std::string tokenizer;                     // a file or folder, or bpe, byte or char (trained on the text)
  int64_t tokenizer_vocab = 4096;            // used if a bpe is trained
  std::string tokenizer_pattern = "cl100k";  // used if a bpe is trained
  double val_fraction = 0.1;
  std::string text_field = "text";
  bool finds_special = false;  // Tokenizer::set_finds_special()
  int64_t shard_tokens = 100'000'000;
  std::string dtype = "auto";  // auto | uint16 | uint32
  std::filesystem::path out;   // a new or empty folder
};

// Writes train_000001.bin ..., val_000000.bin ..., tokenizer.json and dataset.json to options.out; the
// folder appears complete or not at all. The text is read twice, once to count and check it and once to
// tokenize it; training a bpe or char tokenizer reads it a third time. Memory holds the tokenizer and a few
// batches of kBatchBytes; however, a text that cannot be cut anywhere is held whole (Tokenizer::find_cut).
// The tokens are those of load_split() and tokenize(). Throws the errors of those two, of ShardWriter and of
// StagedFolder.
Dataset prepare_dataset(const PrepareOptions& options, const CorpusProgress& progress = {});

}  // namespace ingot
