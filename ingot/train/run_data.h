// From the [data] section to what training reads: a tokenizer, and the training and validation streams.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/data/corpus.h"
#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer.h"
#include "ingot/train/config.h"

namespace ingot {

struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenSource train, val;
  Documents val_documents;  // empty for token shards
  std::string summary;      // "1.0 MB train, 112 kB val, 65 tokens in the vocabulary ..."
};

// tokenizer_json: of the checkpoint being resumed; absent, data.tokenizer says which (and trains it).
// kUsage or kData errors name the key or file and the fix.
RunData load_run_data(const DataConfig& config, const std::optional<std::string>& tokenizer_json);

// Text files or token shards as one stream, for evaluation.
TokenSource load_stream(const std::vector<std::string>& specs, const std::string& text_field,
                        const Tokenizer& tokenizer);

}  // namespace ingot
