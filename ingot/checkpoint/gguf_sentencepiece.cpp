#include "ingot/checkpoint/gguf_sentencepiece.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";  // stands for a space in tokens

[[noreturn]] void refuse_sentencepiece(const std::string& why) {
  fail(ErrorKind::kData, "tokenizer: {}; llama.cpp gives the ids of SentencePiece's BPE, as in Llama 2", why);
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

int64_t characters(std::string_view text) { return std::ranges::count_if(text, begins_character); }

// Returns whether a space is put before the text. Llama 2's files do so and mark spaces in the normalizer, or
// both in a pre-tokenizer Metaspace.
bool adds_space(const TokenizerSpec& spec, std::vector<std::string>& notes) {
  using Normalizer = NormalizerStep::Type;
  bool prepends = false, marks = false;
  for (const NormalizerStep& step : spec.pipeline.normalizers) {
    if (step.type == Normalizer::kPrepend && step.content == kSpaceMark && !prepends && !marks)
      prepends = true;
    else if (step.type == Normalizer::kReplace && step.pattern == " " && step.content == kSpaceMark && !marks)
      marks = true;
    else
      refuse_sentencepiece("its normalizer does more than to mark spaces");
  }
  const std::vector<PreTokenizerStep>& steps = spec.pipeline.pre_tokenizers;
  if (steps.empty()) {
    if (!marks) refuse_sentencepiece("it does not mark spaces");
    return prepends;
  }
  if (steps.size() > 1 || steps[0].type != PreTokenizerStep::Type::kMetaspace ||
      steps[0].marker != kSpaceMark || prepends || marks)
    refuse_sentencepiece("its pre-tokenizer is none of SentencePiece's");
  for (const std::string& token : spec.tokens)
    if (steps[0].splits && token.rfind(kSpaceMark) != std::string::npos && token.rfind(kSpaceMark) > 0)
      refuse_sentencepiece(fmt::format("it splits before every space, but the token {} has one inside",
                                       printable_token(token)));
  if (steps[0].prepend == PrependScheme::kFirst)
    notes.emplace_back(
        "llama.cpp puts a space before the text after every special token, not only the first");
  return steps[0].prepend != PrependScheme::kNever;
}

// Finds the pairs of neighbours that llama.cpp joins but the merges do not.
class PairCheck {
 public:
  explicit PairCheck(const TokenizerSpec& spec) {
    for (size_t id = 0; id < spec.tokens.size(); ++id)
      if (characters(spec.tokens[id]) == 1) made_.emplace(spec.tokens[id], static_cast<uint32_t>(id));
    for (const TokenizerMerge& merge : spec.merges) {
      made_.emplace(spec.tokens[merge.result], merge.result);
      pairs_.emplace(merge.left, merge.right);
    }
  }

  // Returns the left side of a split of the text into two symbols that no merge joins; empty if there is
  // none. A symbol is a token that merges make, or any character.
  std::string_view unmerged(std::string_view text) const {
    for (size_t at = 1; at < text.size(); ++at) {
      if (!begins_character(text[at])) continue;
      const std::string_view left = text.substr(0, at), right = text.substr(at);
      const auto l = made_.find(left), r = made_.find(right);
      const bool is_known = l != made_.end() && r != made_.end();
      if (is_known ? pairs_.contains({l->second, r->second}) : !is_symbol(left) || !is_symbol(right))
        continue;
      return left;
    }
    return {};
  }

 private:
  bool is_symbol(std::string_view text) const { return made_.contains(text) || characters(text) == 1; }

  std::unordered_map<std::string_view, uint32_t> made_;
  std::set<std::pair<uint32_t, uint32_t>> pairs_;
};

std::vector<float> scores_of(const TokenizerSpec& spec) {
  std::vector<float> scores(spec.tokens.size());
  std::vector<bool> has_score(spec.tokens.size());
  float score = 0;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const uint32_t id = spec.merges[i].result;
    if (i > 0 && spec.merges[i - 1].result == id) continue;
    if (has_score[id])
      refuse_sentencepiece(
          fmt::format("the merges that make {} do not follow each other", printable_token(spec.tokens[id])));
    has_score[id] = true;
    scores[id] = --score;
  }
  return scores;
}

void check_pairs(const TokenizerSpec& spec, std::vector<std::string>& notes) {
  const PairCheck check(spec);
  std::vector<std::string> spelt;
  for (const std::string& token : spec.tokens) {
    const std::string_view left = check.unmerged(token);
    if (left.empty()) continue;
    if (!is_byte_token(token))
      refuse_sentencepiece(fmt::format("{} and {} form a token, but no merge joins them",
                                       printable_token(std::string(left)),
                                       printable_token(token.substr(left.size()))));
    spelt.push_back(token);
  }
  for (const AddedToken& token : spec.added)
    if (token.is_special && !check.unmerged(token.content).empty()) spelt.push_back(token.content);
  if (!spelt.empty())
    notes.push_back(fmt::format("a text that spells {} has this token's id in llama.cpp", spelt.front()));
}

}  // namespace

bool is_byte_token(const std::string& token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
         kDigits.find(token[3]) != std::string_view::npos && kDigits.find(token[4]) != std::string_view::npos;
}

bool is_sentencepiece_like(const TokenizerSpec& spec) {
  return spec.kind == TokenizerSpec::Kind::kPipeline && !spec.pipeline.is_byte_level &&
         spec.pipeline.has_byte_fallback;
}

SentencePiece sentencepiece_of(const TokenizerSpec& spec) {
  SentencePiece result;
  if (std::ranges::count_if(spec.tokens, is_byte_token) < 256)  // no token occurs twice
    refuse_sentencepiece("some bytes have no token <0xNN>");
  if (spec.takes_whole_pieces) refuse_sentencepiece("it looks whole words up (ignore_merges)");
  result.adds_space = adds_space(spec, result.notes);
  result.scores = scores_of(spec);
  check_pairs(spec, result.notes);
  return result;
}

}  // namespace ingot
