#include "ingot/data/prepare.h"

#include <xxhash.h>

#include <array>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/corpus_stream.h"
#include "ingot/data/corpus_tokenizer.h"
#include "ingot/data/document_stats.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"
#include "ingot/formats/xxh3.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

BpeTrainConfig bpe_config_of(const PrepareOptions& options) {
  BpeTrainConfig config;
  config.vocab_size = options.tokenizer_vocab;
  config.pattern = options.tokenizer_pattern;
  return config;
}

DType shard_dtype_of(const std::string& text, int64_t vocab_size) {
  if (text == "auto") return shard_dtype(vocab_size);
  if (text == "uint32") return DType::u32;
  if (text != "uint16") fail(ErrorKind::kUsage, "--dtype must be auto, uint16 or uint32, got '{}'", text);
  if (shard_dtype(vocab_size) != DType::u16)
    fail(ErrorKind::kUsage, "--dtype uint16 holds ids up to 65535, the vocabulary has {}; use uint32",
         vocab_size);
  return DType::u16;
}

// Writes the shards of one split and counts what is in them.
class PartWriter {
 public:
  PartWriter(const fs::path& folder, const char* prefix, DType dtype, int64_t shard_tokens, int first_number)
      : shards_(folder, prefix, dtype, shard_tokens, first_number) {}

  void add(const TextBatch& batch, const Tokenizer& tokenizer) {
    is_used_ = true;
    for (const TextPiece& piece : batch.pieces) {
      if (piece.begins_document) end_document();
      part_.documents += piece.begins_document ? 1 : 0;
      part_.text_bytes += static_cast<int64_t>(piece.text.size());
      hash_.add(std::as_bytes(std::span(piece.text)));
      length_ += static_cast<int64_t>(piece.text.size());
    }
    tokenize_batch(batch, tokenizer, [&](const TokenPiece& piece) { shards_.append(piece.tokens); });
  }
  DatasetPart finish() {
    if (is_used_) shards_.commit();
    part_.tokens = shards_.tokens();
    TokenSource written;
    for (const fs::path& file : shards_.files()) {
      part_.files.push_back(file.filename().string());
      written.add(TokenShard(file));
    }
    part_.hash = written.content_hash();
    end_document();
    return part_;
  }
  // The documents of the finished part, by the hashes of their text.
  const DocumentStats& documents() const { return documents_; }

 private:
  static constexpr size_t kMaxHashes = size_t{1} << 16;

  void end_document() {
    if (length_ > 0) documents_.add(length_, hash_.value(), {});
    hash_.reset();
    length_ = 0;
  }

  ShardSetWriter shards_;
  DatasetPart part_;
  DocumentStats documents_{0, kMaxHashes};
  Xxh3 hash_;           // of the document so far
  int64_t length_ = 0;  // its bytes
  bool is_used_ = false;
};

std::map<std::string, std::string> arguments_of(const PrepareOptions& options) {
  std::string data;
  for (const std::string& spec : options.data) data += (data.empty() ? "" : " ") + spec;
  std::map<std::string, std::string> arguments = {{"data", data},
                                                  {"tokenizer", options.tokenizer},
                                                  {"val_fraction", fmt::format("{}", options.val_fraction)},
                                                  {"text_field", options.text_field},
                                                  {"shard_tokens", fmt::format("{}", options.shard_tokens)},
                                                  {"dtype", options.dtype}};
  if (options.finds_special) arguments["special"] = "true";
  if (options.tokenizer == "bpe") {
    arguments["vocab_size"] = fmt::format("{}", options.tokenizer_vocab);
    arguments["pattern"] = options.tokenizer_pattern;
  }
  return arguments;
}

}  // namespace

Dataset prepare_dataset(const PrepareOptions& options, const CorpusProgress& progress) {
  StagedFolder out(options.out);
  std::unique_ptr<Tokenizer> tokenizer;
  if (!is_corpus_tokenizer(options.tokenizer)) {
    tokenizer = load_tokenizer(options.tokenizer);
    shard_dtype_of(options.dtype, tokenizer->vocab_size());
  } else {
    shard_dtype_of(options.dtype, 0);
  }
  const StreamedCorpus corpus(options.data, options.val_fraction, options.text_field,
                              in_phase(progress, "reading"));
  const std::array<const StreamedCorpus*, 1> corpora = {&corpus};
  if (!tokenizer)
    tokenizer = make_corpus_tokenizer(options.tokenizer, bpe_config_of(options), corpora, progress);
  tokenizer->set_finds_special(options.finds_special);
  Dataset dataset;
  dataset.vocab_size = tokenizer->vocab_size();
  dataset.dtype = shard_dtype_of(options.dtype, dataset.vocab_size);
  dataset.text_hash = corpus.content_hash();
  dataset.arguments = arguments_of(options);
  PartWriter train(out.path(), "train", dataset.dtype, options.shard_tokens, 1);
  PartWriter val(out.path(), "val", dataset.dtype, options.shard_tokens, 0);
  corpus.walk([&](std::string_view text, size_t from) { return tokenizer->find_data_cut(text, from); },
              [&](const TextBatch& batch) { (batch.is_val ? val : train).add(batch, *tokenizer); },
              in_phase(progress, "tokenizing"));
  dataset.train = train.finish();
  dataset.val = val.finish();
  dataset.val.also_in_train = val.documents().also_in(train.documents()).documents;
  const std::string json = tokenizer->to_json();
  dataset.tokenizer_hash = XXH3_64bits(json.data(), json.size());
  write_file(out.path() / kDatasetTokenizerName, json);
  write_side_files(tokenizer->side_files(), out.path());
  write_file(out.path() / kDatasetName, dataset_json(dataset));
  out.commit();
  return dataset;
}

}  // namespace ingot
