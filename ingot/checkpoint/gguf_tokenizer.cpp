#include "ingot/checkpoint/gguf_tokenizer.h"

#include <algorithm>

#include "ingot/checkpoint/gguf_sentencepiece.h"
#include "ingot/core/error.h"
#include "ingot/data/tokenizer/bpe_encoder.h"
#include "ingot/data/tokenizer/pretokenize.h"
#include "ingot/formats/byte_chars.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {

using Kind = TokenizerSpec::Kind;
using StepType = PreTokenizerStep::Type;

// llama.cpp's types of tokens.
constexpr int32_t kNormalToken = 1, kUnknownToken = 2, kControlToken = 3, kUserToken = 4, kUnusedToken = 5,
                  kByteToken = 6;

[[noreturn]] void refuse_tokenizer(std::string_view why) {
  fail(ErrorKind::kData,
       "tokenizer: {}; llama.cpp gives the ids of byte-level BPE with the pre-tokenizers of GPT-2, Llama 3, "
       "Qwen 2, "
       "SmolLM and DeepSeek V3",
       why);
}

bool is_split(const PreTokenizerStep& step, std::string_view expression) {
  return step.type == StepType::kSplit && step.is_regex && !step.inverts &&
         step.behavior == PreTokenizerStep::Behavior::kIsolated && step.pattern == expression;
}

// Returns our name of the way in which the text is split: a name of Pretokenizer, smollm or deepseek3; or an
// empty string.
std::string_view split_name(const TokenizerSpec& spec) {
  if (spec.kind == Kind::kByteBpe)  // "gpt2" stands for ByteLevel's own expression
    return spec.pattern == "gpt2" ? "gpt2" : Pretokenizer::name_of(spec.pattern);
  const std::vector<PreTokenizerStep>& steps = spec.pipeline.pre_tokenizers;
  if (steps.empty() || steps.back().type != StepType::kByteLevel ||
      steps.back().prepend != PrependScheme::kNever)
    return {};
  const bool splits_last = steps.back().splits;
  if (steps.size() == 1 && splits_last) return "gpt2";
  if (steps.size() == 2 && splits_last && steps[0].type == StepType::kDigits && steps[0].isolates_digits)
    return "smollm";
  if (splits_last) return {};
  if (steps.size() == 2 && is_split(steps[0], steps[0].pattern))
    return Pretokenizer::name_of(steps[0].pattern);
  const bool is_deepseek = steps.size() == 4 && is_split(steps[0], R"(\p{N}{1,3})") &&
                           is_split(steps[1], steps[1].pattern) && is_split(steps[2], kDeepSeek3Expression) &&
                           steps[1].pattern == "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
  return is_deepseek ? "deepseek3" : "";
}

struct LlamaCppSplit {
  std::string_view name;    // ours
  std::string_view pre;     // tokenizer.ggml.pre
  bool takes_whole_pieces;  // llama.cpp looks a piece up before it merges
};
constexpr LlamaCppSplit kSplits[] = {
    {"gpt2", "gpt-2", false},       {"llama3", "smaug-bpe", false}, {"llama3", "llama-bpe", true},
    {"cl100k", "smaug-bpe", false}, {"cl100k", "llama-bpe", true},  {"o200k", "gpt-4o", false},
    {"qwen2", "qwen2", false},      {"smollm", "smollm", false},    {"deepseek3", "deepseek-v3", false},
};

// Returns the value of tokenizer.ggml.pre. Whether whole pieces are looked up makes no difference if the
// merges make every token.
std::string_view pre_of(const TokenizerSpec& spec) {
  if (spec.merges.empty() && !spec.takes_whole_pieces)
    return "gpt-2";  // every byte is a token, however text is split
  const std::string_view name = split_name(spec);
  const bool is_free = merges_make_every_token(spec.tokens, spec.merges);
  for (const LlamaCppSplit& split : kSplits)
    if (split.name == name && (is_free || split.takes_whole_pieces == spec.takes_whole_pieces))
      return split.pre;
  if (std::any_of(std::begin(kSplits), std::end(kSplits),
                  [&](const auto& split) { return split.name == name; }))
    refuse_tokenizer("its merges do not make every token, and ignore_merges is another than llama.cpp's");
  refuse_tokenizer("llama.cpp does not split text as it does");
}

void check_gguf_tokenizer(const TokenizerSpec& spec) {
  if (spec.kind == Kind::kCharacters) refuse_tokenizer("its tokens are single characters");
  if (spec.kind == Kind::kByteBpe) return;
  if (!spec.pipeline.is_byte_level) refuse_tokenizer("it is not byte-level");
  if (spec.pipeline.unknown) refuse_tokenizer("it has an unknown token");
  for (const NormalizerStep& step : spec.pipeline.normalizers)
    if (step.type != NormalizerStep::Type::kNfc)
      refuse_tokenizer("it has a normalizer other than NFC (which llama.cpp leaves out)");
}

// Adds the tokens and their types, which both kinds of tokenizers have.
void add_tokens(GgufMetadata& metadata, const TokenizerSpec& spec, int64_t vocab) {
  const bool is_sentencepiece = is_sentencepiece_like(spec);
  const auto count = static_cast<size_t>(vocab);
  std::vector<std::string> tokens(count);
  std::vector<int32_t> types(count, kUnusedToken);
  for (size_t id = 0; id < std::min(count, spec.tokens.size()); ++id) {
    if (spec.tokens[id].empty()) continue;
    tokens[id] = is_sentencepiece ? spec.tokens[id] : bytes_to_chars(spec.tokens[id]);
    types[id] = is_sentencepiece && is_byte_token(tokens[id]) ? kByteToken : kNormalToken;
  }
  for (const AddedToken& token : spec.added) {
    if (token.id >= count) continue;
    tokens[token.id] = token.content;
    types[token.id] = token.is_special ? kControlToken : kUserToken;
  }
  if (spec.pipeline.unknown && *spec.pipeline.unknown < count) types[*spec.pipeline.unknown] = kUnknownToken;
  for (size_t id = 0; id < count; ++id)
    if (types[id] == kUnusedToken) tokens[id] = fmt::format("[PAD{}]", id);
  metadata.add("tokenizer.ggml.tokens", tokens);
  metadata.add("tokenizer.ggml.token_type", types);
}

void add_special_ids(GgufMetadata& metadata, const TokenizerSpec& spec, const Tokenizer& tokenizer) {
  const TokenizerSideFiles& side = tokenizer.side_files();
  if (const std::optional<TokenId> end = tokenizer.end_of_text()) {
    const auto start = std::ranges::find(spec.added, "<s>", &AddedToken::content);
    const bool has_start = is_sentencepiece_like(spec) && start != spec.added.end();
    metadata.add("tokenizer.ggml.bos_token_id", has_start ? start->id : side.bos_id.value_or(*end));
  }
  if (std::vector<TokenId> ends = tokenizer.eos_ids(); !ends.empty()) {
    // llama.cpp knows two names; the tokenizer's own eos_token is the first.
    const auto named = side.tokens.find("eos_token");
    const auto own = std::ranges::find_if(ends, [&](TokenId id) {
      const auto added = std::ranges::find(spec.added, id, &AddedToken::id);
      return named != side.tokens.end() && added != spec.added.end() && added->content == named->second;
    });
    if (own != ends.end()) std::rotate(ends.begin(), own, own + 1);
    metadata.add("tokenizer.ggml.eos_token_id", ends[0]);
    if (ends.size() > 1) metadata.add("tokenizer.ggml.eot_token_id", ends[1]);
  }
  if (spec.pipeline.unknown) metadata.add("tokenizer.ggml.unknown_token_id", *spec.pipeline.unknown);
  metadata.add_flag("tokenizer.ggml.add_bos_token", false);
  metadata.add_flag("tokenizer.ggml.add_eos_token", false);
  if (!side.chat_jinja.empty()) metadata.add("tokenizer.chat_template", std::string_view(side.chat_jinja));
}

std::vector<std::string> add_sentencepiece(GgufMetadata& metadata, const TokenizerSpec& spec, int64_t vocab) {
  SentencePiece piece = sentencepiece_of(spec);
  piece.scores.resize(static_cast<size_t>(vocab));
  metadata.add("tokenizer.ggml.model", std::string_view("llama"));
  metadata.add("tokenizer.ggml.pre", std::string_view("default"));
  metadata.add("tokenizer.ggml.scores", piece.scores);
  metadata.add_flag("tokenizer.ggml.add_space_prefix", piece.adds_space);
  return piece.notes;
}

std::vector<std::string> add_byte_bpe(GgufMetadata& metadata, const TokenizerSpec& spec) {
  check_gguf_tokenizer(spec);
  std::vector<std::string> merges;
  for (const TokenizerMerge& merge : spec.merges)
    merges.push_back(bytes_to_chars(spec.tokens[merge.left]) + " " +
                     bytes_to_chars(spec.tokens[merge.right]));
  metadata.add("tokenizer.ggml.model", std::string_view("gpt2"));
  metadata.add("tokenizer.ggml.pre", pre_of(spec));
  metadata.add("tokenizer.ggml.merges", merges);
  std::vector<std::string> notes;
  if (split_name(spec) == "cl100k")
    notes.emplace_back(
        "llama.cpp splits as Llama 3 does: a text that ends in a line break and then spaces has other ids "
        "there");
  if (!spec.pipeline.normalizers.empty())
    notes.emplace_back("llama.cpp does not normalize: a text that is not in NFC has other ids there");
  return notes;
}

}  // namespace

std::vector<std::string> add_gguf_tokenizer(GgufMetadata& metadata, const Tokenizer& tokenizer,
                                            int64_t vocab) {
  const TokenizerSpec spec = read_tokenizer_json(tokenizer.to_json(), "tokenizer.json");
  std::vector<std::string> notes =
      is_sentencepiece_like(spec) ? add_sentencepiece(metadata, spec, vocab) : add_byte_bpe(metadata, spec);
  add_tokens(metadata, spec, vocab);
  add_special_ids(metadata, spec, tokenizer);
  return notes;
}

}  // namespace ingot
