// From the [data] section to what training reads: a tokenizer, and the training and validation streams.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/data/corpus.h"
#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/run/record/run_record.h"

namespace ingot {

struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenSource train, val;
  Documents val_documents;  // empty for token shards but a prepared folder's short ones
  std::string summary;      // "1.0 MB train, 112 kB val, 65 tokens in the vocabulary ..."
};

// What run.json says of it. The hash of the tokenizer is that of its tokenizer.json.
RunInputs hashes_of(const RunData& data);

// data.train names text, token shards, or one prepared folder (dataset_folder.h), which brings tokenizer and
// split. Shards without a validation part are split by data.val_fraction at their end.
// tokenizer_json: of the checkpoint being resumed; absent, data.tokenizer says which (and trains it).
// kUsage or kData errors name the key or file and the fix.
RunData load_run_data(const DataConfig& config, const std::optional<std::string>& tokenizer_json);

// Text files, token shards, or a prepared folder's validation part as one stream, for evaluation. kData error
// if the folder was prepared with another tokenizer.
TokenSource load_stream(const std::vector<std::string>& specs, const std::string& text_field,
                        const Tokenizer& tokenizer);

}  // namespace ingot
