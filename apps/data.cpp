// ingot data prepare|inspect
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/progress_line.h"
#include "ingot/config/config_units.h"
#include "ingot/core/error.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/data/dataset_folder.h"
#include "ingot/data/prepare.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

struct Options {
  std::vector<std::string> data;
  std::string tokenizer, out, text_field = "text", shard_tokens = "100M", dtype = "auto";
  std::string vocab_size = "4096", pattern = "cl100k";  // for a BPE trained here
  double val_fraction = 0.1;
};

int64_t parse_shard_tokens(const std::string& text) {
  const std::optional<int64_t> count = parse_count(text);
  if (!count || *count < 1 || *count > kMaxShardTokens)
    fail(ErrorKind::kUsage, "--shard-tokens must be a count from 1 to {} like 100M, got '{}'",
         kMaxShardTokens, text);
  return *count;
}

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(std::max<int64_t>(1, b));
}

void print_part(const DatasetPart& part) {
  if (part.files.empty()) return;
  fmt::print("  {} files from {}: {} tokens, {} documents, {} bytes of text, {:.3f} bytes per token\n",
             part.files.size(), part.files.front(), part.tokens, part.documents, part.text_bytes,
             ratio(part.text_bytes, part.tokens));
}

void prepare(const Options& options) {
  const std::optional<int64_t> vocab_size = parse_count(options.vocab_size);
  if (!vocab_size)
    fail(ErrorKind::kUsage, "--vocab-size must be a count like 4096 or 32k, got '{}'", options.vocab_size);
  const PrepareOptions prepared = {.data = options.data,
                                   .tokenizer = options.tokenizer,
                                   .tokenizer_vocab = *vocab_size,
                                   .tokenizer_pattern = options.pattern,
                                   .val_fraction = options.val_fraction,
                                   .text_field = options.text_field,
                                   .shard_tokens = parse_shard_tokens(options.shard_tokens),
                                   .dtype = options.dtype,
                                   .out = options.out};
  ProgressLine line;
  const Dataset dataset = prepare_dataset(
      prepared, [&](std::string_view phase, int64_t done, int64_t total) { line.show(phase, done, total); });
  line.end();
  fmt::print("{}: {} ids, {} shards\n", options.out, dataset.vocab_size,
             dataset.dtype == DType::u16 ? "uint16" : "uint32");
  print_part(dataset.train);
  print_part(dataset.val);
  fmt::print("  train on it: ingot train tiny-llama --data {}\n", options.out);
}

// Returns the beginning of the tokens as text, on one line.
std::string preview(const TokenSource& source, const Tokenizer& tokenizer) {
  std::vector<uint32_t> ids(static_cast<size_t>(std::min<int64_t>(source.tokens(), 32)));
  source.read(0, ids);
  std::string line = Utf8Stream().push(decode(tokenizer, ids));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return line;
}

void inspect_shards(const std::string& spec, const Tokenizer* tokenizer) {
  const std::optional<uint32_t> end_of_text = tokenizer ? tokenizer->end_of_text() : std::nullopt;
  const TokenSource source = open_shards(std::span(&spec, 1), end_of_text);
  const TokenSummary summary = summarize(source);
  fmt::print("{}: {} tokens, ids {} to {}, hash {:016x}\n", spec, source.tokens(), summary.lowest_id,
             summary.highest_id, source.content_hash());
  if (!tokenizer) return;
  const int64_t text_bytes = count_text_bytes(source, *tokenizer);  // throws if the tokenizer lacks an id
  fmt::print("  {} end-of-text tokens, {} bytes of text, {:.3f} bytes per token\n  begins: {}\n",
             summary.end_of_texts, text_bytes, ratio(text_bytes, source.tokens()),
             preview(source, *tokenizer));
}

void inspect_folder(const fs::path& folder) {
  const Dataset dataset = read_dataset(folder);
  const std::unique_ptr<Tokenizer> tokenizer = open_dataset_tokenizer(folder, dataset);
  fmt::print("{}: a prepared folder, {} ids, {} shards, text hash {:016x}\n", folder.string(),
             dataset.vocab_size, dataset.dtype == DType::u16 ? "uint16" : "uint32", dataset.text_hash);
  for (const DatasetPart* part : {&dataset.train, &dataset.val}) {
    open_dataset_part(folder, *part, *tokenizer);  // throws if the shards differ from dataset.json
    print_part(*part);
  }
}

void inspect_text(const std::string& spec, const std::string& text_field) {
  const Documents documents = load_documents(std::span(&spec, 1), text_field);
  if (spec == kCppHeadersCorpus || spec == kBibleCorpus) fmt::print("{}\n", describe_builtin(spec));
  fmt::print("{}: {} documents, {} bytes of UTF-8 text, hash {:016x}\n", spec, documents.size(),
             documents.size_bytes(), documents.content_hash());
}

void inspect(const Options& options) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = load_tokenizer(options.tokenizer);
  size_t bad = 0;
  for (const std::string& spec : options.data) {
    try {
      if (const auto folder = prepared_folder(std::span(&spec, 1)))
        inspect_folder(*folder);
      else if (names_shards(std::span(&spec, 1)))
        inspect_shards(spec, tokenizer.get());
      else
        inspect_text(spec, options.text_field);
    } catch (const Error& error) {
      if (options.data.size() == 1) throw;
      fmt::print("NOT VALID: {}\n", error.what());
      ++bad;
    }
  }
  if (bad > 0) fail(ErrorKind::kData, "{} of {} are not valid, see above", bad, options.data.size());
}

}  // namespace

void add_data_command(Command& app) {
  Command* command = app.add_subcommand("data", "Prepare and inspect training data");
  command->require_subcommand();
  auto options = std::make_shared<Options>();
  Options& o = *options;
  constexpr const char* kTokenizerHelp = "tokenizer.json, .tiktoken, encoder.json or a folder";

  Command* action = command->add_subcommand(
      "prepare", "Text to a folder for `ingot train --data`: token shards and tokenizer");
  action
      ->add_option("--tokenizer", o.tokenizer,
                   kTokenizerHelp + std::string("; or bpe, char (trained on the text), byte"))
      ->required();
  action
      ->add_option(
          "--data", o.data,
          "Text files (.gz and .zst too), folders, patterns, .jsonl, builtin:bible, builtin:cpp-headers")
      ->required();
  action
      ->add_option("--out", o.out,
                   "New folder: train_000001.bin ..., val_000000.bin ..., tokenizer.json, dataset.json")
      ->required();
  action->add_option("--vocab-size", o.vocab_size, "Tokens of a trained bpe")->capture_default_str();
  action->add_option("--pattern", o.pattern, "How a trained bpe splits text")->capture_default_str();
  action->add_option("--val-fraction", o.val_fraction, "Last part, kept for validation")
      ->capture_default_str();
  action->add_option("--shard-tokens", o.shard_tokens, "Tokens of a file at most")->capture_default_str();
  action->add_option("--dtype", o.dtype, "auto, uint16 or uint32")->capture_default_str();
  action->add_option("--text-field", o.text_field, "Field of .jsonl lines")->capture_default_str();
  action->callback([options] { prepare(*options); });

  action = command->add_subcommand("inspect", "What data files hold, and whether they are valid");
  action->add_option("data", o.data, "A prepared folder, shards (nanogpt:FILE if without header) or text")
      ->required();
  action->add_option("--tokenizer", o.tokenizer, kTokenizerHelp);
  action->add_option("--text-field", o.text_field, "Field of .jsonl lines")->capture_default_str();
  action->callback([options] { inspect(*options); });
}

}  // namespace ingot
