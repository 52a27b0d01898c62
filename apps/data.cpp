// ingot data prepare|inspect
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/progress_line.h"
#include "ingot/config/config_units.h"
#include "ingot/console/colour.h"
#include "ingot/core/error.h"
#include "ingot/core/process/stop_signals.h"
#include "ingot/core/visible_text.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/data/chat/chat_data.h"
#include "ingot/data/dataset_folder.h"
#include "ingot/data/document_stats.h"
#include "ingot/data/prepare.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/run/run.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {
using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> data;
  std::string tokenizer, out, text_field = "text", shard_tokens = "100M", dtype = "auto", chat_template;
  std::string vocab_size = "4096", pattern = "cl100k";  // for a BPE trained here
  double val_fraction = 0.1;
  int64_t samples = 3;  // inspect
  bool finds_special = false, is_quiet = false, is_json = false;
};

int64_t parse_shard_tokens(const std::string& text) {
  const std::optional<int64_t> count = parse_count(text);
  if (!count || *count < 1 || *count > kMaxShardTokens)
    fail(ErrorKind::kUsage, "--shard-tokens must be a count from 1 to {} like 100M, got '{}'",
         kMaxShardTokens, text);
  return *count;
}

// "1 file", "2 files".
std::string counted(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(std::max<int64_t>(1, b));
}

void print_part(const DatasetPart& part) {
  if (part.files.empty()) return;
  fmt::print("  {} from {}: {} tokens, {}, {} bytes of text, {:.3f} bytes per token\n",
             counted(std::ssize(part.files), "file"), part.files.front(), part.tokens,
             counted(part.documents, "document"), part.text_bytes, ratio(part.text_bytes, part.tokens));
}

// Says how many documents of the validation part the training part has too.
void print_leak(int64_t documents, bool is_estimated, int64_t all) {
  fmt::print("  also in the training part: {}{} of {} ({:.1f} %){}\n", is_estimated ? "about " : "",
             documents, counted(all, "document"), 100 * ratio(documents, all),
             documents == 0 ? "" : ", whose loss says how well the model remembers them");
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
                                   .finds_special = options.finds_special,
                                   .shard_tokens = parse_shard_tokens(options.shard_tokens),
                                   .dtype = options.dtype,
                                   .out = options.out};
  const StopSignals signals(
      [](const char* name) { fmt::print(stderr, "{}: the command ends and writes nothing\n", name); });
  ProgressLine line(options.is_quiet);
  const Dataset dataset = prepare_dataset(prepared, [&](std::string_view phase, int64_t done, int64_t total) {
    if (signals.is_stop_requested()) throw Exit{kExitInterrupted};
    line.show(phase, done, total);
  });
  line.end();
  if (options.is_json) {
    fmt::print("{}", dataset_json(dataset));
    return;
  }
  if (options.is_quiet) return;
  fmt::print("{}: {} ids, {} shards\n", options.out, dataset.vocab_size,
             dataset.dtype == DType::u16 ? "uint16" : "uint32");
  print_part(dataset.train);
  print_part(dataset.val);
  if (dataset.val.documents > 0) print_leak(dataset.val.also_in_train, false, dataset.val.documents);
  fmt::print("  train on it: ingot train tiny-llama --data {}\n", options.out);
}

struct InspectOptions {
  std::vector<std::string> data;
  std::string tokenizer, text_field = "text", chat_template;
  int64_t samples = 3;  // documents shown
  bool is_json = false;
};

// Prints the statistics for a reader; unit: "bytes" or "tokens".
void print_documents(const DocumentStats& stats, const char* unit) {
  if (stats.documents() == 0) return;
  fmt::print("  lengths: {} to {} {}, mean {:.1f}\n", stats.shortest(), stats.longest(), unit,
             ratio(stats.length(), stats.documents()));
  const auto bins = stats.bins();
  int64_t most = 1;
  for (const auto& bin : bins) most = std::max(most, bin.documents);
  for (size_t k = 0; k < bins.size(); ++k) {
    if (bins[k].documents == 0) continue;
    constexpr double kBarCharacters = 40;
    const int64_t low = k == 0 ? 0 : int64_t{1} << (k - 1), high = k == 0 ? 0 : 2 * (low - 1) + 1;
    const auto bar = static_cast<size_t>(kBarCharacters * ratio(bins[k].documents, most) + 0.5);
    fmt::print("  {:>12} to {:<12} {:>10} documents, {:>5.1f} % of all {} {}\n", low, high, bins[k].documents,
               100 * ratio(bins[k].length, stats.length()), unit, std::string(bar, '#'));
  }
  const DocumentStats::Duplicates same = stats.duplicates();
  fmt::print("  exact duplicates: {}{} documents ({:.1f} %) with {} {}\n", same.one_in == 1 ? "" : "about ",
             same.documents, 100 * ratio(same.documents, stats.documents()), same.length, unit);
  for (const DocumentStats::Sample& sample : stats.samples())
    fmt::print("  document {} ({}, {} {}): {}\n", sample.index, visible_line(sample.name), sample.length,
               unit, visible_line(sample.begin));
}

Json documents_json(const DocumentStats& stats, const char* unit) {
  Json bins = Json::array(), samples = Json::array();
  for (size_t k = 0; k < stats.bins().size(); ++k)
    if (const auto& bin = stats.bins()[k]; bin.documents > 0)
      bins.push_back({{"from", k == 0 ? 0 : int64_t{1} << (k - 1)},
                      {"documents", bin.documents},
                      {"length", bin.length}});
  for (const DocumentStats::Sample& sample : stats.samples())
    samples.push_back(
        {{"index", sample.index}, {"name", sample.name}, {"length", sample.length}, {"begin", sample.begin}});
  const DocumentStats::Duplicates same = stats.duplicates();
  const bool is_empty = stats.documents() == 0;
  return {{"unit", unit},
          {"documents", stats.documents()},
          {"length", stats.length()},
          {"shortest", is_empty ? 0 : stats.shortest()},
          {"longest", stats.longest()},
          {"histogram", bins},
          {"duplicates",
           {{"documents", same.documents}, {"length", same.length}, {"is_estimated", same.one_in > 1}}},
          {"samples", samples}};
}

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

// Describes a token stream as part of `json`, or prints it.
Json inspect_tokens(const std::string& name, const TokenSource& source, const Tokenizer* tokenizer,
                    const InspectOptions& options) {
  const TokenSummary summary = summarize(source);
  const bool has_documents = source.documents().end_of_text || !source.documents().positions.empty();
  std::optional<int64_t> text_bytes;
  if (tokenizer) text_bytes = count_text_bytes(source, *tokenizer);  // throws if the tokenizer lacks an id
  std::optional<DocumentStats> documents;
  if (has_documents) documents = token_stats(source, tokenizer, static_cast<size_t>(options.samples));
  if (options.is_json) {
    Json json = {{"name", name},
                 {"kind", "tokens"},
                 {"tokens", source.tokens()},
                 {"lowest_id", summary.lowest_id},
                 {"highest_id", summary.highest_id},
                 {"hash", hex(source.content_hash())}};
    if (text_bytes) json["text_bytes"] = *text_bytes;
    json["documents"] = documents ? documents_json(*documents, "tokens") : Json(nullptr);
    return json;
  }
  fmt::print("{}: {} tokens, ids {} to {}, hash {}\n", name, source.tokens(), summary.lowest_id,
             summary.highest_id, hex(source.content_hash()));
  if (tokenizer) {
    constexpr int64_t kShownTokens = 32;
    std::vector<uint32_t> ids(static_cast<size_t>(std::min(source.tokens(), kShownTokens)));
    source.read(0, ids);
    fmt::print("  {} end-of-text tokens, {} bytes of text, {:.3f} bytes per token\n  begins: {}\n",
               summary.end_of_texts, *text_bytes, ratio(*text_bytes, source.tokens()),
               visible_line(one_line_preview(Utf8Stream().push(decode(*tokenizer, ids)), SIZE_MAX)));
  }
  if (documents) print_documents(*documents, "tokens");
  return {};
}

Json inspect_folder(const fs::path& folder, const InspectOptions& options) {
  const Dataset dataset = read_dataset(folder);
  const std::unique_ptr<Tokenizer> tokenizer = open_dataset_tokenizer(folder, dataset);
  Json parts = Json::object();
  std::optional<DocumentStats> training;
  if (!options.is_json)
    fmt::print("{}: a prepared folder, {} ids, {} shards, text hash {}\n", folder.string(),
               dataset.vocab_size, dataset.dtype == DType::u16 ? "uint16" : "uint32", hex(dataset.text_hash));
  for (const auto& [name, part] : {std::pair("train", &dataset.train), std::pair("val", &dataset.val)}) {
    // Throws if the shards differ from dataset.json.
    const TokenSource source = open_dataset_part(folder, *part, *tokenizer);
    if (part->files.empty()) continue;
    std::optional<DocumentStats> documents;
    if (part->documents > 1 && tokenizer->end_of_text())
      documents = token_stats(source, tokenizer.get(), static_cast<size_t>(options.samples));
    std::optional<DocumentStats::Duplicates> shared;  // documents of both parts
    if (training && documents) shared = documents->also_in(*training);
    if (part == &dataset.train) training = documents;
    if (options.is_json) {
      parts[name] = {{"files", part->files.size()},
                     {"tokens", part->tokens},
                     {"text_bytes", part->text_bytes},
                     {"documents", documents ? documents_json(*documents, "tokens") : Json(nullptr)}};
      if (shared)
        parts[name]["also_in_train"] = {{"documents", shared->documents},
                                        {"is_estimated", shared->one_in > 1}};
      continue;
    }
    print_part(*part);
    if (documents) print_documents(*documents, "tokens");
    if (!documents && part->documents > 1)
      fmt::print(
          "  no lengths, duplicates and samples: the tokenizer has no end-of-text token, so nothing in the "
          "shards says where a document ends; inspect the text itself\n");
    if (shared)
      print_leak(shared->documents, shared->one_in > 1, documents->documents());
    else if (part->documents > 0 && part->also_in_train >= 0)
      print_leak(part->also_in_train, false, part->documents);
  }
  return {{"name", folder.string()},
          {"kind", "prepared"},
          {"vocab_size", dataset.vocab_size},
          {"text_hash", hex(dataset.text_hash)},
          {"parts", parts}};
}

Json inspect_text(const std::string& spec, const InspectOptions& options) {
  const TextStats stats =
      text_stats(std::span(&spec, 1), options.text_field, static_cast<size_t>(options.samples));
  if (options.is_json)
    return {{"name", spec},
            {"kind", "text"},
            {"hash", hex(stats.content_hash)},
            {"documents", documents_json(stats.documents, "bytes")}};
  if (spec == kCppHeadersCorpus || spec == kBibleCorpus) fmt::print("{}\n", describe_builtin(spec));
  fmt::print("{}: {} documents, {} bytes of UTF-8 text, hash {}\n", spec, stats.documents.documents(),
             stats.documents.length(), hex(stats.content_hash));
  print_documents(stats.documents, "bytes");
  return {};
}

// Prints a conversation as the model reads it, one line for each run of tokens. Targets have a plus, and are
// green in a terminal.
void print_masked(const ChatTokens& tokens, const Tokenizer& tokenizer) {
  const bool has_colour = wants_colour(isatty(STDOUT_FILENO));
  for (size_t begin = 0; begin < tokens.ids.size();) {
    const bool is_target = tokens.is_target[begin];
    std::string bytes;
    for (; begin < tokens.ids.size() && tokens.is_target[begin] == is_target; ++begin)
      tokenizer.append_bytes(tokens.ids[begin], bytes);
    const std::string line = fmt::format("{} {}", is_target ? '+' : ' ',
                                         visible_line(one_line_preview(Utf8Stream().push(bytes), SIZE_MAX)));
    fmt::print("    {}\n", has_colour ? painted(line, is_target ? Colour::kGreen : Colour::kDim) : line);
  }
}

Json inspect_chat(const std::string& spec, const Tokenizer* tokenizer, const InspectOptions& options) {
  if (!tokenizer)
    fail(ErrorKind::kUsage,
         "{}: is chat data; name the folder of the model that shall read it, with --tokenizer FOLDER", spec);
  const ChatFormat format{.tokenizer = *tokenizer,
                          .template_name = options.chat_template,
                          .source = options.tokenizer,
                          .context = INT64_MAX};
  const Chats chats = read_chats(std::span(&spec, 1), format);
  int64_t tokens = 0, targets = 0, shortest = INT64_MAX, longest = 0;
  for (const ChatTokens& one : chats.conversations) {
    tokens += std::ssize(one.ids);
    targets += std::ranges::count(one.is_target, true);
    shortest = std::min(shortest, std::ssize(one.ids));
    longest = std::max(longest, std::ssize(one.ids));
  }
  if (options.is_json)
    return {{"name", spec},      {"kind", "chat"},     {"conversations", chats.conversations.size()},
            {"tokens", tokens},  {"targets", targets}, {"shortest", shortest},
            {"longest", longest}};
  fmt::print("{}: {}, {} to {} tokens, {:.1f} % of them targets\n  the first one, with its targets marked:\n",
             spec, counted(std::ssize(chats.conversations), "conversation"), shortest, longest,
             100 * ratio(targets, tokens));
  print_masked(chats.conversations.front(), *tokenizer);
  return {};
}

Json inspect_one(const std::string& spec, const Tokenizer* tokenizer, const InspectOptions& options) {
  const std::span<const std::string> specs(&spec, 1);
  if (const auto folder = prepared_folder(specs)) return inspect_folder(*folder, options);
  if (!names_shards(specs) && names_chat(specs, options.text_field))
    return inspect_chat(spec, tokenizer, options);
  if (!names_shards(specs)) return inspect_text(spec, options);
  const TokenSource source = open_shards(specs, tokenizer ? tokenizer->end_of_text() : std::nullopt);
  return inspect_tokens(spec, source, tokenizer, options);
}

// Inspects each spec. If one of several is not valid, it is named, the others follow, and a kData error ends
// the command.
void inspect_data(const InspectOptions& options) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = load_tokenizer(options.tokenizer);
  size_t bad = 0;
  Json all = Json::array();
  for (const std::string& spec : options.data) {
    try {
      all.push_back(inspect_one(spec, tokenizer.get(), options));
    } catch (const Error& error) {
      if (options.data.size() == 1) throw;
      if (options.is_json)
        all.push_back({{"name", spec}, {"kind", "not valid"}, {"error", error.what()}});
      else
        fmt::print("NOT VALID: {}\n", error.what());
      ++bad;
    }
  }
  if (options.is_json) fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
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
  action->add_flag("--special", o.finds_special, "Text that spells a special token becomes this token");
  action->add_flag("--quiet", o.is_quiet, "Print warnings and errors only, and what --json prints");
  action->add_flag("--json", o.is_json, "Print dataset.json when done");
  action->callback([options] { prepare(*options); });

  action = command->add_subcommand(
      "inspect", "What data files hold, lengths and duplicates of documents, and whether they are valid");
  action
      ->add_option("data", o.data,
                   "A prepared folder, shards (nanogpt:FILE if without header), text or chat data")
      ->required();
  action->add_option("--tokenizer", o.tokenizer, kTokenizerHelp);
  action->add_option("--text-field", o.text_field, "Field of .jsonl lines")->capture_default_str();
  action->add_option("--chat-template", o.chat_template, "Name of a known template for chat data");
  action->add_option("--samples", o.samples, "Documents to show")->count(0, 1000)->capture_default_str();
  action->add_flag("--json", o.is_json, "A JSON array with one object per argument");
  action->callback([options] {
    inspect_data({.data = options->data,
                  .tokenizer = options->tokenizer,
                  .text_field = options->text_field,
                  .chat_template = options->chat_template,
                  .samples = options->samples,
                  .is_json = options->is_json});
  });
}

}  // namespace ingot
