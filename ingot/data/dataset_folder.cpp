#include "ingot/data/dataset_folder.h"

#include <xxhash.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/token_source_shards.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {
using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "ingot-dataset";
constexpr int kVersion = 1;
constexpr std::string_view kPrepareAgain = "prepare the folder again with `ingot data prepare`";

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

Json part_json(const DatasetPart& part) {
  Json json = {{"files", part.files},
               {"tokens", part.tokens},
               {"documents", part.documents},
               {"text_bytes", part.text_bytes},
               {"hash", hex(part.hash)}};
  if (part.also_in_train >= 0) json["also_in_train"] = part.also_in_train;
  return json;
}

// Reads the members of dataset.json and checks their types.
class Reader {
 public:
  Reader(const Json& json, std::string file) : json_(json), file_(std::move(file)) {}

  Reader member(const char* name) const {
    const Json& value = at(name);
    if (!value.is_object()) refuse(name, "an object");
    return {value, file_};
  }
  int64_t count(const char* name) const {
    const Json& value = at(name);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX})
      refuse(name, "a whole number");
    return value.get<int64_t>();
  }
  std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) refuse(name, "a string");
    return value.get<std::string>();
  }
  uint64_t hash(const char* name) const {
    const std::string digits = text(name);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.size() != 16)
      refuse(name, "16 hexadecimal digits");
    return value;
  }
  // Returns shard names. Names with a path are refused because the folder is flat and must not lead
  // outside itself.
  std::vector<std::string> files(const char* name) const {
    const Json& value = at(name);
    if (!value.is_array()) refuse(name, "a list of file names");
    std::vector<std::string> names;
    for (const Json& file : value) {
      if (!file.is_string()) refuse(name, "a list of file names");
      names.push_back(file.get<std::string>());
      if (!names.back().ends_with(".bin") || names.back().find('/') != std::string::npos)
        refuse(name, "names of .bin files in this folder");
    }
    return names;
  }
  DatasetPart part(const char* name) const {
    const Reader json = member(name);
    return {.files = json.files("files"),
            .tokens = json.count("tokens"),
            .documents = json.count("documents"),
            .text_bytes = json.count("text_bytes"),
            .hash = json.hash("hash"),
            .also_in_train = json.json_.contains("also_in_train") ? json.count("also_in_train") : -1};
  }
  [[noreturn]] void refuse(const char* name, const char* wanted) const {
    fail(ErrorKind::kData, "{}: \"{}\" must be {}; {}", file_, name, wanted, kPrepareAgain);
  }

 private:
  const Json& at(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) fail(ErrorKind::kData, "{}: has no \"{}\"; {}", file_, name, kPrepareAgain);
    return *found;
  }

  const Json& json_;
  std::string file_;
};

}  // namespace

std::string dataset_json(const Dataset& dataset) {
  const Json json = {
      {"format", kFormat},
      {"version", kVersion},
      {"train", part_json(dataset.train)},
      {"val", part_json(dataset.val)},
      {"dtype", dataset.dtype == DType::u16 ? "uint16" : "uint32"},
      {"tokenizer", {{"vocab_size", dataset.vocab_size}, {"hash", hex(dataset.tokenizer_hash)}}},
      {"text", {{"hash", hex(dataset.text_hash)}}},
      {"arguments", dataset.arguments}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<fs::path> prepared_folder(std::span<const std::string> specs) {
  for (const std::string& spec : specs) {
    std::error_code ignored;
    if (!fs::is_regular_file(fs::path(spec) / kDatasetName, ignored)) continue;
    if (specs.size() > 1)
      fail(ErrorKind::kUsage,
           "{}: is a prepared folder, which stands alone, but {} sources are given; give it only", spec,
           specs.size());
    return spec;
  }
  return std::nullopt;
}

Dataset read_dataset(const fs::path& folder) {
  const MappedFile file(folder / kDatasetName);
  return parse_dataset(file.text(), file.path().string());
}

Dataset parse_dataset(std::string_view text, const std::string& file) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) fail(ErrorKind::kData, "{}: is not a JSON object; {}", file, kPrepareAgain);
  const Reader reader(json, file);
  if (reader.text("format") != kFormat) reader.refuse("format", "\"ingot-dataset\"");
  if (const int64_t version = reader.count("version"); version != kVersion)
    fail(ErrorKind::kData, "{}: has version {}, this program reads version {}; {}", file, version, kVersion,
         kPrepareAgain);
  Dataset dataset;
  dataset.train = reader.part("train");
  dataset.val = reader.part("val");
  const std::string dtype = reader.text("dtype");
  if (dtype != "uint16" && dtype != "uint32") reader.refuse("dtype", "uint16 or uint32");
  dataset.dtype = dtype == "uint16" ? DType::u16 : DType::u32;
  dataset.vocab_size = reader.member("tokenizer").count("vocab_size");
  dataset.tokenizer_hash = reader.member("tokenizer").hash("hash");
  dataset.text_hash = reader.member("text").hash("hash");
  if (dataset.train.files.empty())
    fail(ErrorKind::kData, "{}: lists no training shards; {}", file, kPrepareAgain);
  return dataset;
}

std::unique_ptr<Tokenizer> open_dataset_tokenizer(const fs::path& folder, const Dataset& dataset) {
  const fs::path path = folder / kDatasetTokenizerName;
  const MappedFile file(path);
  const uint64_t hash = XXH3_64bits(file.text().data(), file.text().size());
  if (hash != dataset.tokenizer_hash)
    fail(ErrorKind::kData,
         "{}: is not the tokenizer that made this folder's tokens (hash {:016x}, {} says {:016x}); {}",
         path.string(), hash, kDatasetName, dataset.tokenizer_hash, kPrepareAgain);
  std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer(file.text(), path.string());
  if (tokenizer->vocab_size() != dataset.vocab_size)
    fail(ErrorKind::kData, "{}: has {} ids, {} says {}; {}", path.string(), tokenizer->vocab_size(),
         kDatasetName, dataset.vocab_size, kPrepareAgain);
  tokenizer->set_side_files(read_side_files(folder));
  return tokenizer;
}

TokenSource open_dataset_part(const fs::path& folder, const DatasetPart& part, const Tokenizer& tokenizer) {
  TokenSource source;
  for (const std::string& name : part.files) source.add(TokenShard(folder / name));
  source.set_documents({.end_of_text = tokenizer.end_of_text(), .positions = {}});
  source.set_text_bytes(part.text_bytes);
  const std::string first = part.files.empty() ? "" : part.files.front();
  if (source.tokens() != part.tokens)
    fail(ErrorKind::kData,
         "{}: {} and what follows it hold {} tokens, {} says {}; copy the folder again or {}",
         folder.string(), first, source.tokens(), kDatasetName, part.tokens, kPrepareAgain);
  if (const uint64_t hash = source.content_hash(); hash != part.hash)
    fail(
        ErrorKind::kData,
        "{}: the tokens of {} and what follows it are not those that {} says (hash {:016x}, wanted {:016x}); "
        "copy the folder again or {}",
        folder.string(), first, kDatasetName, hash, part.hash, kPrepareAgain);
  return source;
}

}  // namespace ingot
