// ingot data prepare|inspect
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/data_inspect.h"
#include "apps/progress_line.h"
#include "ingot/config/config_units.h"
#include "ingot/core/error.h"
#include "ingot/data/dataset_folder.h"
#include "ingot/data/prepare.h"
#include "ingot/data/token_source_shards.h"

namespace ingot {
namespace {

struct Options {
  std::vector<std::string> data;
  std::string tokenizer, out, text_field = "text", shard_tokens = "100M", dtype = "auto";
  std::string vocab_size = "4096", pattern = "cl100k";  // for a BPE trained here
  double val_fraction = 0.1;
  int64_t samples = 3;   // inspect
  bool is_json = false;  // inspect
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

  action = command->add_subcommand(
      "inspect", "What data files hold, lengths and duplicates of documents, and whether they are valid");
  action->add_option("data", o.data, "A prepared folder, shards (nanogpt:FILE if without header) or text")
      ->required();
  action->add_option("--tokenizer", o.tokenizer, kTokenizerHelp);
  action->add_option("--text-field", o.text_field, "Field of .jsonl lines")->capture_default_str();
  action->add_option("--samples", o.samples, "Documents to show")->count(0, 1000)->capture_default_str();
  action->add_flag("--json", o.is_json, "A JSON array with one object per argument");
  action->callback([options] {
    inspect_data({.data = options->data,
                  .tokenizer = options->tokenizer,
                  .text_field = options->text_field,
                  .samples = options->samples,
                  .is_json = options->is_json});
  });
}

}  // namespace ingot
