#include "ingot/data/tokenizer/tokenizer_side_files.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/tokenizer/json_node.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxSideFileBytes = uint64_t{16} << 20;
constexpr uint64_t kIdLimit = uint64_t{1} << 31;

std::string read_side_file(const fs::path& path) {
  const MappedFile file(path);
  if (file.size_bytes() > kMaxSideFileBytes)
    fail(ErrorKind::kData, "{}: {} bytes is too large for a file beside a tokenizer (at most {})",
         path.string(), file.size_bytes(), kMaxSideFileBytes);
  return std::string(file.text());
}

// A token id or a list of them; empty if the value is missing or null.
std::vector<uint32_t> token_ids(const JsonNode& value) {
  std::vector<uint32_t> ids;
  if (!value.is_set()) return ids;
  if (!value.is_list()) return {value.id(kIdLimit)};
  for (size_t i = 0; i < value.size(); ++i) ids.push_back(value.item(i).id(kIdLimit));
  return ids;
}

void read_ids(const fs::path& path, TokenizerSideFiles& side) {
  if (!path_exists(path)) return;
  const JsonDocument document(read_side_file(path), path.string());
  const JsonNode root = document.root();
  for (const uint32_t id : token_ids(root["eos_token_id"]))
    if (std::ranges::find(side.eos_ids, id) == side.eos_ids.end()) side.eos_ids.push_back(id);
  if (const auto ids = token_ids(root["bos_token_id"]); !ids.empty()) side.bos_id = ids.front();
  // For a model without a padding token, generation_config.json names the first eos.
  if (const auto ids = token_ids(root["pad_token_id"]);
      !ids.empty() && (side.eos_ids.empty() || ids.front() != side.eos_ids.front()))
    side.pad_id = ids.front();
}

// A token of tokenizer_config.json is a text, or an object with one.
void read_tokens(const JsonNode& root, TokenizerSideFiles& side) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const JsonNode value = root[name].is_object() ? root[name]["content"] : root[name];
    if (value.is_set() && !value.text().empty()) side.tokens[name] = value.text();
  }
}

}  // namespace

void TokenizerSideFiles::fill_from(const TokenizerSideFiles& other) {
  if (chat_jinja.empty() && chat_json.empty()) {
    chat_jinja = other.chat_jinja;
    chat_json = other.chat_json;
  }
  tokens.insert(other.tokens.begin(), other.tokens.end());
  if (eos_ids.empty()) eos_ids = other.eos_ids;
  if (!bos_id) bos_id = other.bos_id;
  if (!pad_id) pad_id = other.pad_id;
}

TokenizerSideFiles read_side_files(const fs::path& folder) {
  TokenizerSideFiles side;
  const fs::path jinja = folder / kChatTemplateFile, config = folder / "tokenizer_config.json";
  if (path_exists(jinja)) side.chat_jinja = read_side_file(jinja);
  if (path_exists(config)) {
    const JsonDocument document(read_side_file(config), config.string());
    const JsonNode value = document.root()[kChatTemplateKey];
    if (value.is_set()) side.chat_json = value.dump();
    read_tokens(document.root(), side);
  }
  read_ids(folder / "config.json", side);
  read_ids(folder / kGenerationConfigName, side);
  return side;
}

void write_side_files(const TokenizerSideFiles& side, const fs::path& folder) {
  using Json = nlohmann::ordered_json;
  if (!side.chat_jinja.empty()) write_file(folder / kChatTemplateFile, side.chat_jinja);
  Json config(side.tokens), generation = Json::object();
  if (!side.chat_json.empty()) config[kChatTemplateKey] = Json::parse(side.chat_json);
  if (!side.eos_ids.empty()) generation["eos_token_id"] = side.eos_ids;
  if (side.bos_id) generation["bos_token_id"] = *side.bos_id;
  if (side.pad_id) generation["pad_token_id"] = *side.pad_id;
  if (!config.empty()) write_file(folder / "tokenizer_config.json", config.dump(1) + "\n");
  if (!generation.empty()) write_file(folder / kGenerationConfigName, generation.dump(1) + "\n");
}

}  // namespace ingot
