#include "apps/data_inspect.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/data/dataset_folder.h"
#include "ingot/data/document_stats.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {
using Json = nlohmann::ordered_json;

double quotient(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(std::max<int64_t>(1, b));
}

// Prints the statistics for a reader; unit: "bytes" or "tokens".
void print_documents(const DocumentStats& stats, const char* unit) {
  if (stats.documents() == 0) return;
  fmt::print("  lengths: {} to {} {}, mean {:.1f}\n", stats.shortest(), stats.longest(), unit,
             quotient(stats.length(), stats.documents()));
  const auto bins = stats.bins();
  int64_t most = 1;
  for (const auto& bin : bins) most = std::max(most, bin.documents);
  for (size_t k = 0; k < bins.size(); ++k) {
    if (bins[k].documents == 0) continue;
    constexpr double kBarCharacters = 40;
    const int64_t low = k == 0 ? 0 : int64_t{1} << (k - 1), high = k == 0 ? 0 : 2 * (low - 1) + 1;
    const auto bar = static_cast<size_t>(kBarCharacters * quotient(bins[k].documents, most) + 0.5);
    fmt::print("  {:>12} to {:<12} {:>10} documents, {:>5.1f} % of all {} {}\n", low, high, bins[k].documents,
               100 * quotient(bins[k].length, stats.length()), unit, std::string(bar, '#'));
  }
  const DocumentStats::Duplicates same = stats.duplicates();
  fmt::print("  exact duplicates: {}{} documents ({:.1f} %) with {} {}\n", same.one_in == 1 ? "" : "about ",
             same.documents, 100 * quotient(same.documents, stats.documents()), same.length, unit);
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
               summary.end_of_texts, *text_bytes, quotient(*text_bytes, source.tokens()),
               visible_line(one_line_preview(Utf8Stream().push(decode(*tokenizer, ids)), SIZE_MAX)));
  }
  if (documents) print_documents(*documents, "tokens");
  return {};
}

Json inspect_folder(const fs::path& folder, const InspectOptions& options) {
  const Dataset dataset = read_dataset(folder);
  const std::unique_ptr<Tokenizer> tokenizer = open_dataset_tokenizer(folder, dataset);
  Json parts = Json::object();
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
    if (options.is_json) {
      parts[name] = {{"files", part->files.size()},
                     {"tokens", part->tokens},
                     {"text_bytes", part->text_bytes},
                     {"documents", documents ? documents_json(*documents, "tokens") : Json(nullptr)}};
      continue;
    }
    fmt::print("  {} files from {}: {} tokens, {} documents, {} bytes of text, {:.3f} bytes per token\n",
               part->files.size(), part->files.front(), part->tokens, part->documents, part->text_bytes,
               quotient(part->text_bytes, part->tokens));
    if (documents) print_documents(*documents, "tokens");
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

Json inspect_one(const std::string& spec, const Tokenizer* tokenizer, const InspectOptions& options) {
  const std::span<const std::string> specs(&spec, 1);
  if (const auto folder = prepared_folder(specs)) return inspect_folder(*folder, options);
  if (!names_shards(specs)) return inspect_text(spec, options);
  const TokenSource source = open_shards(specs, tokenizer ? tokenizer->end_of_text() : std::nullopt);
  return inspect_tokens(spec, source, tokenizer, options);
}

}  // namespace

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

}  // namespace ingot
