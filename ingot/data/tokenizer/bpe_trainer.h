// Trains a BPE tokenizer on text that arrives in batches; only the distinct words are stored.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ingot/data/tokenizer/pretokenize.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTrainConfig config);  // kUsage error

  // Counts the words of more documents, or of pieces cut at find_cut. The texts may be freed afterwards.
  void add(std::span<const std::string_view> documents);
  size_t find_cut(std::string_view text, size_t from) const { return pretokenizer_.find_cut(text, from); }
  // Returns the same tokenizer as train_bpe() on all documents.
  std::unique_ptr<Tokenizer> train() const;

 private:
  BpeTrainConfig config_;
  Pretokenizer pretokenizer_;
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace ingot
