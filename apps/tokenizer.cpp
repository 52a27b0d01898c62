// ingot tokenizer train|encode|decode|import|export
#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/corpus_stream.h"
#include "ingot/data/corpus_tokenizer.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/data/tokenizer/tokenizer_export.h"

namespace ingot {
namespace {

struct Options {
  int64_t vocab_size = 4096;
  std::string tokenizer, in, out, pattern, format, text_field = "text";
  std::vector<std::string> data;
  bool finds_special = false, is_quiet = false, is_json = false;
};

// Prints what was written, as a line or as one JSON object.
void report(const Options& options, const std::string& line, const nlohmann::ordered_json& object) {
  if (options.is_json)
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  else if (!line.empty() && !options.is_quiet)
    fmt::print("{}\n", line);
}

void train(const Options& options) {
  const StreamedCorpus corpus(options.data, 0, options.text_field);
  BpeTrainConfig config;
  config.vocab_size = options.vocab_size;
  if (!options.pattern.empty()) config.pattern = options.pattern;
  const std::array<const StreamedCorpus*, 1> corpora = {&corpus};
  const std::unique_ptr<Tokenizer> tokenizer = make_corpus_tokenizer("bpe", config, corpora);
  write_file(options.out, tokenizer->to_json());
  std::string line = fmt::format("{}: {} tokens", options.out, tokenizer->vocab_size());
  if (tokenizer->vocab_size() < config.vocab_size)
    line += fmt::format("\n  fewer than {}: no other pair of tokens occurs {} times in the text",
                        config.vocab_size, config.min_count);
  report(options, line, {{"out", options.out}, {"tokens", tokenizer->vocab_size()}});
}

void encode_file(const Options& options) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.tokenizer, options.pattern);
  const MappedFile text(options.in);
  const std::vector<TokenId> ids =
      options.finds_special ? encode_with_special(*tokenizer, text.text()) : encode(*tokenizer, text.text());
  static_assert(std::endian::native == std::endian::little);
  write_file(options.out, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId)});
  report(options, fmt::format("{}: {} tokens from {} bytes", options.out, ids.size(), text.size_bytes()),
         {{"out", options.out}, {"tokens", ids.size()}, {"bytes", text.size_bytes()}});
}

void decode_file(const Options& options) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.tokenizer, options.pattern);
  const MappedFile file(options.in);
  if (file.size_bytes() % sizeof(TokenId) != 0)
    fail(ErrorKind::kData, "{}: {} bytes are no whole number of uint32 ids; is it an ids file?", options.in,
         file.size_bytes());
  std::vector<TokenId> ids(file.size_bytes() / sizeof(TokenId));
  if (!ids.empty()) std::memcpy(ids.data(), file.bytes().data(), file.size_bytes());
  const std::string text = decode(*tokenizer, ids);
  write_file(options.out, text);
  report(options, "", {{"out", options.out}, {"tokens", ids.size()}, {"bytes", text.size()}});
}

TokenizerFormat parse_format(const Options& options) {
  if (options.format == "folder") return TokenizerFormat::kFolder;
  if (options.format == "json") return TokenizerFormat::kJson;
  if (options.format == "gpt2") return TokenizerFormat::kGpt2;
  if (options.format == "tiktoken") return TokenizerFormat::kTiktoken;
  if (!options.format.empty())
    fail(ErrorKind::kUsage, "--format must be folder, json, gpt2 or tiktoken, got '{}'", options.format);
  if (options.out.ends_with(".json")) return TokenizerFormat::kJson;
  return options.out.ends_with(".tiktoken") ? TokenizerFormat::kTiktoken : TokenizerFormat::kFolder;
}

using Run = void (*)(const Options&);

Command* add_action(Command& parent, const std::shared_ptr<Options>& options, const char* name,
                    const char* description, Run run) {
  Command* action = parent.add_subcommand(name, description);
  action->add_flag("--quiet", options->is_quiet, "Print warnings and errors only, and what --json prints");
  action->add_flag("--json", options->is_json, "One JSON object about what was written");
  action->callback([options, run] { run(*options); });
  return action;
}

}  // namespace

void add_tokenizer_command(Command& app) {
  Command* command = app.add_subcommand("tokenizer", "Train, apply and convert tokenizers");
  command->require_subcommand();
  auto options = std::make_shared<Options>();
  Options& o = *options;
  constexpr const char* kTokenizerHelp = "tokenizer.json, .tiktoken, encoder.json or a folder";
  constexpr const char* kPatternHelp = "gpt2, cl100k, o200k, llama3, qwen2 or a regular expression";

  Command* action = add_action(*command, options, "train", "Train a byte-level BPE on text files", train);
  action->add_option("--data", o.data, "Text files (.gz and .zst too), folders, patterns, .jsonl")
      ->required();
  action->add_option("--text-field", o.text_field, "Field of .jsonl lines")->capture_default_str();
  action->add_option("--vocab-size", o.vocab_size, "Tokens")->count(1, 1 << 24)->capture_default_str();
  action->add_option("--pattern", o.pattern, kPatternHelp)->default_str("gpt2");
  action->add_option("--out", o.out, "tokenizer.json to write")->required();

  for (const bool is_encode : {true, false}) {
    action = is_encode
                 ? add_action(*command, options, "encode", "Text to uint32 little-endian ids", encode_file)
                 : add_action(*command, options, "decode", "The inverse of encode", decode_file);
    action->add_option("--tokenizer", o.tokenizer, kTokenizerHelp)->required();
    action->add_option("--in", o.in, is_encode ? "Text" : "Ids")->required();
    action->add_option("--out", o.out, is_encode ? "Ids to write" : "Text to write")->required();
    action->add_option("--pattern", o.pattern, "How a .tiktoken of your own splits text");
    if (is_encode) action->add_flag("--special", o.finds_special, "Find special tokens in the text too");
  }

  const Run convert = [](const Options& given) {
    const TokenizerFormat format = parse_format(given);
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(given.tokenizer, given.pattern);
    export_tokenizer(*tokenizer, format, given.out);
    report(given, "", {{"out", given.out}, {"tokens", tokenizer->vocab_size()}});
  };
  for (const bool is_import : {true, false}) {
    action = is_import
                 ? add_action(*command, options, "import", "Other programs' files to tokenizer.json", convert)
                 : add_action(*command, options, "export", "To the files of other programs", convert);
    action->add_option("tokenizer", o.tokenizer, kTokenizerHelp)->required();
    action->add_option("--out", o.out, "*.json, *.tiktoken or a folder")->required();
    action->add_option("--pattern", o.pattern, "How a .tiktoken of your own splits text");
    if (!is_import)
      action->add_option("--format", o.format,
                         "folder (Hugging Face), json, gpt2 or tiktoken; else by --out");
  }
}

}  // namespace ingot
