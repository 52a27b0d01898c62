// ingot data prepare|inspect
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/core/error.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"
#include "ingot/data/tokenizer.h"
#include "ingot/train/config_units.h"

namespace ingot {
namespace {

struct Options {
  std::vector<std::string> data;
  std::string tokenizer, out, text_field = "text", shard_tokens = "100M", dtype = "auto";
  double val_fraction = 0.1;
};

int64_t parse_shard_tokens(const std::string& text) {
  const std::optional<int64_t> count = parse_count(text);
  if (!count || *count < 1 || *count > kMaxShardTokens)
    fail(ErrorKind::kUsage, "--shard-tokens must be a count from 1 to {} like 100M, got '{}'",
         kMaxShardTokens, text);
  return *count;
}

DType parse_dtype(const std::string& text, int64_t vocab_size) {
  if (text == "auto") return shard_dtype(vocab_size);
  if (text == "uint32") return DType::u32;
  if (text != "uint16") fail(ErrorKind::kUsage, "--dtype must be auto, uint16 or uint32, got '{}'", text);
  if (shard_dtype(vocab_size) != DType::u16)
    fail(ErrorKind::kUsage, "--dtype uint16 holds ids up to 65535, the vocabulary has {}; use uint32",
         vocab_size);
  return DType::u16;
}

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(std::max<int64_t>(1, b));
}

void write_part(const Documents& documents, const Tokenizer& tokenizer, ShardSetWriter writer) {
  if (documents.empty()) return;
  tokenize_pieces(documents, tokenizer, [&](TokenPiece piece) { writer.append(piece.tokens); });
  writer.commit();
  fmt::print("  {} files from {}: {} tokens, {} documents, {} bytes of text, {:.3f} bytes per token\n",
             writer.files().size(), writer.files().front().filename().string(), writer.tokens(),
             documents.size(), documents.size_bytes(), ratio(documents.size_bytes(), writer.tokens()));
}

void prepare(const Options& options) {
  const int64_t shard_tokens = parse_shard_tokens(options.shard_tokens);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.tokenizer);
  const DType dtype = parse_dtype(options.dtype, tokenizer->vocab_size());
  const DocumentSplit parts = load_split(options.data, options.val_fraction, options.text_field);
  StagedFolder out(options.out);
  fmt::print("{}: {} ids, {} shards\n", options.out, tokenizer->vocab_size(),
             dtype == DType::u16 ? "uint16" : "uint32");
  write_part(parts.train, *tokenizer, ShardSetWriter(out.path(), "train", dtype, shard_tokens, 1));
  write_part(parts.val, *tokenizer, ShardSetWriter(out.path(), "val", dtype, shard_tokens, 0));
  out.commit();
}

// The beginning of the tokens as text, on one line.
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
  const int64_t text_bytes = count_text_bytes(source, *tokenizer);  // refuses ids the tokenizer does not have
  fmt::print("  {} end-of-text tokens, {} bytes of text, {:.3f} bytes per token\n  begins: {}\n",
             summary.end_of_texts, text_bytes, ratio(text_bytes, source.tokens()),
             preview(source, *tokenizer));
}

void inspect_text(const std::string& spec, const std::string& text_field) {
  const Documents documents = load_documents(std::span(&spec, 1), text_field);
  if (spec == kCppHeadersCorpus) fmt::print("{}\n", load_cpp_headers().describe());
  fmt::print("{}: {} documents, {} bytes of UTF-8 text, hash {:016x}\n", spec, documents.size(),
             documents.size_bytes(), documents.content_hash());
}

void inspect(const Options& options) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = load_tokenizer(options.tokenizer);
  size_t bad = 0;
  for (const std::string& spec : options.data) {
    try {
      if (names_shards(std::span(&spec, 1)))
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

  Command* action = command->add_subcommand("prepare", "Text to token shards (llm.c's .bin format)");
  action->add_option("--tokenizer", o.tokenizer, kTokenizerHelp)->required();
  action->add_option("--data", o.data, "Text files, folders, patterns, .jsonl, builtin:cpp-headers")
      ->required();
  action->add_option("--out", o.out, "New folder for train_000001.bin ... and val_000000.bin ...")
      ->required();
  action->add_option("--val-fraction", o.val_fraction, "Last part, kept for validation")
      ->capture_default_str();
  action->add_option("--shard-tokens", o.shard_tokens, "Tokens of a file at most")->capture_default_str();
  action->add_option("--dtype", o.dtype, "auto, uint16 or uint32")->capture_default_str();
  action->add_option("--text-field", o.text_field, "Field of .jsonl lines")->capture_default_str();
  action->callback([options] { prepare(*options); });

  action = command->add_subcommand("inspect", "What data files hold, and whether they are valid");
  action->add_option("data", o.data, "Shards (nanogpt:FILE if without header) or text")->required();
  action->add_option("--tokenizer", o.tokenizer, kTokenizerHelp);
  action->add_option("--text-field", o.text_field, "Field of .jsonl lines")->capture_default_str();
  action->callback([options] { inspect(*options); });
}

}  // namespace ingot
