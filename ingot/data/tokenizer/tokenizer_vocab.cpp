#include <algorithm>
#include <array>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/tokenizer_build.h"

namespace ingot {
namespace {

// Common names of the token between documents, in order of preference.
constexpr std::array<std::string_view, 5> kEndOfText = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                                        "<｜end▁of▁sentence｜>"};

}  // namespace

TokenVocab::TokenVocab(const TokenizerSpec& spec) {
  size_t count = spec.tokens.size();
  for (const AddedToken& token : spec.added) count = std::max<size_t>(count, token.id + size_t{1});
  std::vector<std::string_view> tokens(spec.tokens.begin(), spec.tokens.end());
  tokens.resize(count);
  for (const AddedToken& token : spec.added) tokens[token.id] = token.content;
  begins_.reserve(count + 1);
  begins_.push_back(0);
  for (std::string_view token : tokens) {
    bytes_ += token;
    begins_.push_back(bytes_.size());
  }
  for (size_t k = kEndOfText.size(); k-- > 0;)
    for (const AddedToken& token : spec.added)
      if (token.content == kEndOfText[k]) end_of_text_ = token.id;
}

std::vector<TokenId> Tokenizer::eos_ids() const {
  if (!side_files_.eos_ids.empty()) return side_files_.eos_ids;
  std::vector<TokenId> ids;
  if (const auto eos = side_files_.tokens.find("eos_token"); eos != side_files_.tokens.end())
    encode_with_special(eos->second, ids);
  if (ids.size() == 1) return ids;
  return end_of_text() ? std::vector<TokenId>{*end_of_text()} : std::vector<TokenId>{};
}

void TokenVocab::append_bytes(TokenId id, std::string& out) const {
  if (id >= begins_.size() - 1 || begins_[id] == begins_[id + 1])
    fail(ErrorKind::kData,
         "token id {} has no token: the vocabulary has ids below {}; is it another tokenizer's?", id, size());
  out.append(bytes_, begins_[id], begins_[id + 1] - begins_[id]);
}

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerSpec spec) {
  switch (spec.kind) {
    case TokenizerSpec::Kind::kByteBpe:
      return make_bpe_tokenizer(std::move(spec));
    case TokenizerSpec::Kind::kCharacters:
      return make_character_tokenizer(std::move(spec));
    case TokenizerSpec::Kind::kPipeline:
      break;
  }
  return make_pipeline_tokenizer(std::move(spec));
}

}  // namespace ingot
