#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/formats/byte_chars.h"
#include "ingot/formats/tokenizer/json_node.h"
#include "ingot/formats/tokenizer/pipeline_read.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {

using IdOf = std::unordered_map<std::string, uint32_t>;  // the file's spelling -> id

void read_added_tokens(const JsonNode& list, uint64_t id_limit, TokenizerSpec& spec) {
  if (!list.is_set()) return;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode entry = list.item(i);
    spec.added.push_back({.id = entry["id"].id(id_limit),
                          .content = entry["content"].text(),
                          .is_special = entry["special"].flag(false),
                          .is_single_word = entry["single_word"].flag(false),
                          .strips_left = entry["lstrip"].flag(false),
                          .strips_right = entry["rstrip"].flag(false),
                          .is_normalized = entry["normalized"].flag(false)});
  }
  std::sort(spec.added.begin(), spec.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

IdOf read_vocab(const JsonNode& vocab, uint64_t id_limit) {
  if (!vocab.is_object()) vocab.refuse("an object of tokens and ids");
  IdOf id_of;
  id_of.reserve(vocab.members());
  vocab.for_each(
      [&](const std::string& token, const JsonNode& id) { id_of.emplace(token, id.id(id_limit)); });
  return id_of;
}

// Fills spec.tokens from the vocabulary. Special tokens are left out, and in the kinds without a pipeline
// every added token is.
void place_tokens(const IdOf& id_of, const std::string& name, TokenizerSpec& spec) {
  const bool is_pipeline = spec.kind == TokenizerSpec::Kind::kPipeline;
  const bool is_bytes =
      is_pipeline ? spec.pipeline.is_byte_level : spec.kind == TokenizerSpec::Kind::kByteBpe;
  std::unordered_map<std::string_view, const AddedToken*> added;
  for (const AddedToken& token : spec.added) added.emplace(token.content, &token);
  std::vector<bool> is_taken;
  for (const auto& [spelling, id] : id_of) {
    if (id >= is_taken.size()) is_taken.resize(id + 1);
    if (is_taken[id])
      fail(ErrorKind::kData, "{}: id {} belongs to two tokens, one of them '{}'", name, id,
           printable_token(spelling));
    is_taken[id] = true;
    std::optional<std::string> bytes = is_bytes ? chars_to_bytes(spelling) : spelling;
    const auto found = added.find(spelling);
    if (found != added.end()) {
      if (found->second->id != id)
        fail(ErrorKind::kData, "{}: added token '{}' has id {}, but {} in the vocabulary", name,
             printable_token(spelling), found->second->id, id);
      if (!is_pipeline || found->second->is_special || !bytes) continue;
    }
    if (!bytes || bytes->empty())
      fail(ErrorKind::kData, "{}: token '{}' (id {}) is not spelled in {}characters", name,
           printable_token(spelling), id, is_bytes ? "byte-level " : "");
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

void read_merges(const JsonNode& list, const IdOf& id_of, TokenizerSpec& spec) {
  MergeList merges(id_of, spec);
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode entry = list.item(i);
    if (!entry.is_list()) {
      merges.add(entry.text(), entry.path());
      continue;
    }
    if (entry.size() != 2) entry.refuse("two tokens");
    merges.add(entry.item(0).text(), entry.item(1).text(), entry.path());
  }
}

using PreType = PreTokenizerStep::Type;

bool is_plain_byte_level(const PreTokenizerStep& step) {
  return step.type == PreType::kByteLevel && step.prepend == PrependScheme::kNever;
}

// Returns true if the pieces are those of one regular expression, whose matches and gaps are all kept.
bool is_plain_split(const PreTokenizerStep& step) {
  using Behavior = PreTokenizerStep::Behavior;
  const bool keeps_all = step.behavior == Behavior::kIsolated && !step.inverts;
  const bool keeps_matches = step.behavior == Behavior::kRemoved && step.inverts;
  return step.type == PreType::kSplit && step.is_regex && (keeps_all || keeps_matches);
}

// Recognises the two kinds that need no pipeline, and sets the pattern of byte-level BPE.
void choose_kind(const JsonNode& model, const std::vector<NormalizerStep>& normalizers,
                 const std::vector<PreTokenizerStep>& steps, TokenizerSpec& spec) {
  const auto is_special = [](const AddedToken& token) { return token.is_special; };
  spec.kind = TokenizerSpec::Kind::kPipeline;
  if (!normalizers.empty()) return;
  if (steps.empty() && model["merges"].members() == 0 && !model["unk_token"].is_set() &&
      !model["byte_fallback"].flag(false)) {
    spec.kind = TokenizerSpec::Kind::kCharacters;
    return;
  }
  if (!std::all_of(spec.added.begin(), spec.added.end(), is_special)) return;
  if (steps.empty() || !is_plain_byte_level(steps.back())) return;
  if (steps.size() == 1) {
    spec.pattern = steps[0].splits ? "gpt2" : "";
  } else {
    if (steps.size() != 2 || !is_plain_split(steps[0]) || steps[1].splits) return;
    spec.pattern = steps[0].pattern;
  }
  spec.kind = TokenizerSpec::Kind::kByteBpe;
}

void check_model(const JsonNode& model) {
  const JsonNode type = model["type"];
  if (!type.is_text("BPE") && type.is_set())
    type.refuse("\"BPE\" (Unigram, WordPiece and WordLevel are not supported)");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model[key].is_set() && !model[key].text().empty()) model[key].refuse("none");
}

void check_characters(const TokenizerSpec& spec, const JsonNode& model) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& token = spec.tokens[id];
    const auto is_lead = [](char c) { return (static_cast<uint8_t>(c) & 0xC0u) != 0x80u; };
    if (std::count_if(token.begin(), token.end(), is_lead) > 1)
      fail(ErrorKind::kData, "{}: token '{}' is longer than a character; add a ByteLevel pre-tokenizer",
           model.path(), printable_token(token));
  }
}

void read_unknown(const JsonNode& model, const IdOf& id_of, TokenizerPipeline& pipeline) {
  pipeline.has_byte_fallback = model["byte_fallback"].flag(false);
  pipeline.fuses_unknown = model["fuse_unk"].flag(false);
  const JsonNode unknown = model["unk_token"];
  if (!unknown.is_set()) return;
  const auto found = id_of.find(unknown.text());
  if (found == id_of.end()) unknown.refuse("a token of model.vocab");
  pipeline.unknown = found->second;
}

bool has_all_bytes(const TokenizerSpec& spec) {
  std::array<bool, 256> has_byte{};
  for (const std::string& token : spec.tokens)
    if (token.size() == 1) has_byte[static_cast<uint8_t>(token[0])] = true;
  return std::all_of(has_byte.begin(), has_byte.end(), [](bool has) { return has; });
}

// Upper bound (exclusive) of the ids in a file with this many tokens.
uint64_t id_limit_of(const JsonNode& vocab, const JsonNode& added) {
  return vocab.members() + added.members() + kMaxUnusedTokenIds;
}

}  // namespace

TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& name) {
  const JsonDocument document(text, name);
  const JsonNode root = document.root(), model = root["model"];
  if (!model.is_object()) model.refuse("an object; is this a tokenizer.json?");
  check_model(model);
  TokenizerSpec spec;
  TokenizerPipeline& pipeline = spec.pipeline;
  pipeline.normalizers = read_normalizers(root["normalizer"]);
  pipeline.pre_tokenizers = read_pre_tokenizers(root["pre_tokenizer"]);
  pipeline.is_byte_level = std::any_of(pipeline.pre_tokenizers.begin(), pipeline.pre_tokenizers.end(),
                                       [](const auto& step) { return step.type == PreType::kByteLevel; });
  spec.takes_whole_pieces = model["ignore_merges"].flag(false);
  const uint64_t id_limit = id_limit_of(model["vocab"], root["added_tokens"]);
  read_added_tokens(root["added_tokens"], id_limit, spec);
  choose_kind(model, pipeline.normalizers, pipeline.pre_tokenizers, spec);
  const IdOf id_of = read_vocab(model["vocab"], id_limit);
  read_unknown(model, id_of, pipeline);
  place_tokens(id_of, model["vocab"].path(), spec);
  if (spec.kind == TokenizerSpec::Kind::kByteBpe && pipeline.unknown && !has_all_bytes(spec))
    spec.kind = TokenizerSpec::Kind::kPipeline;
  if (spec.kind == TokenizerSpec::Kind::kCharacters)
    check_characters(spec, model);
  else
    read_merges(model["merges"], id_of, spec);
  if (spec.kind == TokenizerSpec::Kind::kPipeline) {
    pipeline.decoders = read_decoders(root["decoder"]);
    pipeline.json = text;
  } else {
    spec.pipeline = {};
  }
  check_spec(spec, name);
  return spec;
}

TokenizerSpec read_gpt2_vocab(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                              const std::string& merges_name) {
  const JsonDocument document(vocab, vocab_name);
  const JsonNode root = document.root();
  TokenizerSpec spec;
  spec.pattern = "gpt2";
  const IdOf id_of = read_vocab(root, root.members() + kMaxUnusedTokenIds);
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
    if (spelling.starts_with("<|") && spelling.ends_with("|>"))
      spec.added.push_back({.id = id, .content = spelling});
  std::sort(spec.added.begin(), spec.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  place_tokens(id_of, vocab_name, spec);
  check_spec(spec, vocab_name);
  return spec;
}

}  // namespace ingot
