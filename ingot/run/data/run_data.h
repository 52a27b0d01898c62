// Loads what the [data] section names: a tokenizer, and the training and validation streams.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/data/chat/chat_data.h"
#include "ingot/data/corpus.h"
#include "ingot/data/corpus_tokenizer.h"
#include "ingot/data/sampler.h"
#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/run/record/run_record.h"

namespace ingot {

// A source of a mixture (data.mix). Its training tokens are those of RunData::train behind the earlier
// sources'.
struct MixSource {
  std::string name;              // the entry of data.train
  double weight = 1, share = 1;  // as given, and of the sum of all weights
  int64_t train_tokens = 0;
  bool is_packed = false;  // Sampler::Source::is_packed
  TokenSource val = {};    // empty if data.val names the validation text
};

// A further validation text (data.val_sets).
struct ValidationSet {
  std::string name;
  TokenSource tokens;
};

struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenSource train, val;           // a mixture has its sources one behind the other
  std::vector<MixSource> mix = {};  // empty without data.mix
  std::vector<ValidationSet> sets = {};
  Documents val_documents;  // for comparison with compressors; empty for shards, and above kYardstickBytes
  std::string chats = {};   // summary_of() the chat data; "" without
  std::string warning;      // validation documents that are also trained on; "" if they are under 1 %
  std::string summary;      // "1.0 MB train, 112 kB val, 65 tokens in the vocabulary ..."
};

// The hashes and sizes for run.json. The tokenizer's hash is that of its tokenizer.json.
RunInputs hashes_of(const RunData& data);

// Chat data need this in addition to [data].
struct ChatSetup {
  int64_t context = 0;           // model.context
  bool has_pairs = false;        // dpo.beta: the data are pairs of answers, and otherwise conversations
  TokenizerSideFiles side = {};  // of the tokenizer that is given as tokenizer_json
};

// data.train names text, token shards, chat data (chat/conversation.h), or one prepared folder
// (dataset_folder.h), which has its own tokenizer and split. Shards without validation shards are split at
// their end by data.val_fraction. tokenizer_json: of the checkpoint being resumed; if nullopt, data.tokenizer
// names the tokenizer (or trains it). Throws kUsage or kData errors that name the key or file and the fix.
// What `progress` throws ends the loading.
RunData load_run_data(const DataConfig& config, const std::optional<std::string>& tokenizer_json,
                      const CorpusProgress& progress = {}, const ChatSetup& chat = {});

// Returns the order in which a run takes its windows.
Sampler sampler_of(const RunConfig& config, const RunData& data);

}  // namespace ingot
