#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/formats/byte_chars.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {

using nlohmann::json;
using IdOf = std::unordered_map<std::string, uint32_t>;  // the file's spelling -> id

constexpr int kMaxDepth = 64;

size_t line_of(std::string_view text, size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return static_cast<size_t>(std::count(text.begin(), end, '\n')) + 1;
}

// Parses the document. kData error if it is nested too deep or a key occurs twice in one object.
json parse_document(std::string_view text, const std::string& name) {
  if (text.size() > kMaxTokenizerFileBytes)
    fail(ErrorKind::kData, "{}: {} bytes is too large for a tokenizer (at most {})", name, text.size(),
         kMaxTokenizerFileBytes);
  std::vector<std::unordered_set<std::string>> keys;  // keys seen in the open objects
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth) fail(ErrorKind::kData, "{}: nested deeper than {} levels", name, kMaxDepth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second)
        fail(ErrorKind::kData, "{}: '{}' occurs twice in one object", name, printable_token(key));
    }
    return true;
  };
  try {
    json document = json::parse(text.begin(), text.end(), watch);
    if (!document.is_object()) fail(ErrorKind::kData, "{}:1: expected a JSON object", name);
    return document;
  } catch (const json::exception& error) {
    const auto* parse = dynamic_cast<const json::parse_error*>(&error);
    fail(ErrorKind::kData, "{}:{}: not valid JSON: {}", name, parse ? line_of(text, parse->byte) : 1,
         error.what());
  }
}

// A value of the document, with its path for error messages.
struct Node {
  const json* value;  // borrowed; null if absent
  std::string path;

  bool is_set() const { return value && !value->is_null(); }

  // A member; absent if this is not an object or has no such member.
  Node operator[](const char* key) const {
    const bool has_key = is_set() && value->is_object() && value->contains(key);
    return {has_key ? &value->at(key) : nullptr, path + (path.ends_with(": ") ? "" : ".") + key};
  }
  Node item(size_t i) const { return {&value->at(i), fmt::format("{}[{}]", path, i)}; }

  [[noreturn]] void refuse(std::string_view wanted) const {
    fail(ErrorKind::kData, "{}: expected {}, got {}", path, wanted, shown());
  }
  std::string shown() const {
    return value ? printable_token(value->dump(-1, ' ', true, json::error_handler_t::replace)) : "nothing";
  }
  size_t size() const {
    if (!value || !value->is_array()) refuse("a list");
    return value->size();
  }
  const std::string& text() const {
    if (!value || !value->is_string()) refuse("a string");
    return value->get_ref<const std::string&>();
  }
  bool is_text(std::string_view wanted) const { return value && value->is_string() && text() == wanted; }
  bool flag(bool fallback) const {
    if (!is_set()) return fallback;
    if (!value->is_boolean()) refuse("true or false");
    return value->get<bool>();
  }
  uint32_t id(uint64_t limit) const {
    if (!value || !value->is_number_unsigned() || value->get<uint64_t>() >= limit)
      refuse(fmt::format("a token id below {}", limit));
    return value->get<uint32_t>();
  }
};

void read_added_tokens(const Node& list, uint64_t id_limit, TokenizerSpec& spec) {
  if (!list.is_set()) return;
  for (size_t i = 0; i < list.size(); ++i) {
    const Node entry = list.item(i);
    spec.added.push_back({entry["id"].id(id_limit), entry["content"].text(), entry["special"].flag(false)});
  }
  std::sort(spec.added.begin(), spec.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

IdOf read_vocab(const Node& vocab, uint64_t id_limit) {
  if (!vocab.value || !vocab.value->is_object()) vocab.refuse("an object of tokens and ids");
  IdOf id_of;
  id_of.reserve(vocab.value->size());
  for (const auto& [token, id] : vocab.value->items())
    id_of.emplace(token, Node{&id, fmt::format("{}['{}']", vocab.path, printable_token(token))}.id(id_limit));
  return id_of;
}

// Fills spec.tokens from the vocabulary, without its added tokens.
void place_tokens(const IdOf& id_of, const std::string& name, TokenizerSpec& spec) {
  std::unordered_map<std::string_view, uint32_t> added;
  for (const AddedToken& token : spec.added) added.emplace(token.content, token.id);
  std::vector<bool> is_taken;
  for (const auto& [spelling, id] : id_of) {
    if (id >= is_taken.size()) is_taken.resize(id + 1);
    if (is_taken[id])
      fail(ErrorKind::kData, "{}: id {} belongs to two tokens, one of them '{}'", name, id,
           printable_token(spelling));
    is_taken[id] = true;
    const auto found = added.find(spelling);
    if (found != added.end()) {
      if (found->second != id)
        fail(ErrorKind::kData, "{}: added token '{}' has id {}, but {} in the vocabulary", name,
             printable_token(spelling), found->second, id);
      continue;
    }
    std::optional<std::string> bytes =
        spec.kind == TokenizerSpec::Kind::kByteBpe ? chars_to_bytes(spelling) : spelling;
    if (!bytes || bytes->empty())
      fail(ErrorKind::kData, "{}: token '{}' (id {}) is not spelled in byte-level characters", name,
           printable_token(spelling), id);
    if (id >= spec.tokens.size()) spec.tokens.resize(id + 1);
    spec.tokens[id] = std::move(*bytes);
  }
}

// Collects merges. Checks that both sides and the result are tokens and that no pair occurs twice.
class MergeList {
 public:
  MergeList(const IdOf& id_of, TokenizerSpec& spec) : id_of_(id_of), spec_(spec) {}

  void add(const std::string& left, const std::string& right, const std::string& place) {
    const TokenizerMerge merge{id(left, place), id(right, place), id(left + right, place)};
    if (!seen_.insert(uint64_t{merge.left} << 32 | merge.right).second)
      fail(ErrorKind::kData, "{}: the merge '{} {}' occurs twice", place, printable_token(left),
           printable_token(right));
    spec_.merges.push_back(merge);
  }
  void add(const std::string& pair, const std::string& place) {
    const size_t space = pair.find(' ');
    if (space == std::string::npos || space == 0 || pair.find(' ', space + 1) != std::string::npos ||
        space + 1 == pair.size())
      fail(ErrorKind::kData, "{}: expected two tokens with a space between, got '{}'", place,
           printable_token(pair));
    add(pair.substr(0, space), pair.substr(space + 1), place);
  }

 private:
  uint32_t id(const std::string& token, const std::string& place) const {
    const auto found = id_of_.find(token);
    if (found == id_of_.end())
      fail(ErrorKind::kData, "{}: the merge needs the token '{}', which the vocabulary lacks", place,
           printable_token(token));
    return found->second;
  }

  const IdOf& id_of_;
  TokenizerSpec& spec_;
  std::unordered_set<uint64_t> seen_;
};

void read_merges(const Node& list, const IdOf& id_of, TokenizerSpec& spec) {
  MergeList merges(id_of, spec);
  for (size_t i = 0; i < list.size(); ++i) {
    const Node entry = list.item(i);
    if (!entry.value->is_array()) {
      merges.add(entry.text(), entry.path);
      continue;
    }
    if (entry.size() != 2) entry.refuse("two tokens");
    merges.add(entry.item(0).text(), entry.item(1).text(), entry.path);
  }
}

// Returns the pattern of a ByteLevel pre-tokenizer.
std::string read_byte_level(const Node& node) {
  if (node["add_prefix_space"].flag(true)) node["add_prefix_space"].refuse("false");
  return node["use_regex"].flag(true) ? "gpt2" : "";
}

std::string read_split(const Node& split) {
  const bool keeps_all = split["behavior"].is_text("Isolated") && !split["invert"].flag(false);
  const bool keeps_matches = split["behavior"].is_text("Removed") && split["invert"].flag(false);
  if (!keeps_all && !keeps_matches) split["behavior"].refuse("\"Isolated\"");
  return split["pattern"]["Regex"].text();
}

void read_pre_tokenizer(const Node& node, TokenizerSpec& spec) {
  constexpr std::string_view kWanted = "ByteLevel or Sequence[Split, ByteLevel]";
  if (!node.is_set()) {
    spec.kind = TokenizerSpec::Kind::kCharacters;
  } else if (node["type"].is_text("ByteLevel")) {
    spec.pattern = read_byte_level(node);
  } else if (node["type"].is_text("Sequence")) {
    const Node list = node["pretokenizers"];
    if (list.size() != 2 || !list.item(0)["type"].is_text("Split") ||
        !list.item(1)["type"].is_text("ByteLevel"))
      list.refuse("[Split, ByteLevel]");
    if (!read_byte_level(list.item(1)).empty()) list.item(1)["use_regex"].refuse("false after a Split");
    spec.pattern = read_split(list.item(0));
  } else {
    node["type"].refuse(kWanted);
  }
}

void check_model(const Node& model) {
  if (!model["type"].is_text("BPE") && model["type"].is_set()) model["type"].refuse("\"BPE\"");
  if (model["byte_fallback"].flag(false)) model["byte_fallback"].refuse("false (byte-level BPE)");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model[key].is_set() && !model[key].text().empty()) model[key].refuse("none");
}

void check_characters(const TokenizerSpec& spec, const Node& model) {
  if (model["merges"].size() != 0) model["merges"].refuse("no merges where there is no pre-tokenizer");
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& token = spec.tokens[id];
    const auto is_lead = [](char c) { return (static_cast<uint8_t>(c) & 0xC0u) != 0x80u; };
    if (std::count_if(token.begin(), token.end(), is_lead) > 1)
      fail(ErrorKind::kData, "{}: token '{}' is longer than a character; add a ByteLevel pre-tokenizer",
           model.path, printable_token(token));
  }
}

// Upper bound (exclusive) of the ids in a file with this many tokens.
uint64_t id_limit_of(const Node& vocab, const Node& added) {
  const size_t count = (vocab.value ? vocab.value->size() : 0) + (added.value ? added.value->size() : 0);
  return count + kMaxUnusedTokenIds;
}

}  // namespace

TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& name) {
  const json document = parse_document(text, name);
  const Node root{&document, name + ": "};
  const Node model = root["model"];
  if (!model.is_set() || !model.value->is_object()) model.refuse("an object; is this a tokenizer.json?");
  check_model(model);
  if (root["normalizer"].is_set())
    root["normalizer"].refuse("null (Ingot's tokenizers keep every byte as it is)");
  TokenizerSpec spec;
  read_pre_tokenizer(root["pre_tokenizer"], spec);
  spec.takes_whole_pieces = model["ignore_merges"].flag(false);
  const uint64_t id_limit = id_limit_of(model["vocab"], root["added_tokens"]);
  read_added_tokens(root["added_tokens"], id_limit, spec);
  const IdOf id_of = read_vocab(model["vocab"], id_limit);
  place_tokens(id_of, model["vocab"].path, spec);
  if (spec.kind == TokenizerSpec::Kind::kCharacters)
    check_characters(spec, model);
  else
    read_merges(model["merges"], id_of, spec);
  check_spec(spec, name);
  return spec;
}

TokenizerSpec read_gpt2_vocab(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                              const std::string& merges_name) {
  const json document = parse_document(vocab, vocab_name);
  const Node root{&document, vocab_name + ": "};
  TokenizerSpec spec;
  spec.pattern = "gpt2";
  const IdOf id_of = read_vocab(root, document.size() + kMaxUnusedTokenIds);
  MergeList list(id_of, spec);
  size_t number = 0;
  for (size_t begin = 0; begin < merges.size();) {
    const size_t end = std::min(merges.find('\n', begin), merges.size());
    std::string_view line = merges.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1, ++number;
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    list.add(std::string(line), fmt::format("{}:{}", merges_name, number));
  }
  for (const auto& [spelling, id] : id_of)
    if (spelling.starts_with("<|") && spelling.ends_with("|>")) spec.added.push_back({id, spelling, true});
  std::sort(spec.added.begin(), spec.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  place_tokens(id_of, vocab_name, spec);
  check_spec(spec, vocab_name);
  return spec;
}

}  // namespace ingot
