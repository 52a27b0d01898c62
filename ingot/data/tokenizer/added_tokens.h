// Finds the added tokens of a tokenizer.json in text, as the library `tokenizers` does: the leftmost longest
// one first. A token that strips takes the adjacent white space too, and a single-word token is not found
// inside a word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ingot/data/tokenizer/normalize.h"
#include "ingot/formats/tokenizer_spec.h"

namespace ingot {

class AddedTokenMatcher {
 public:
  // Looks for the tokens of the list; the contents, not empty, are what is looked for.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);
  AddedTokenMatcher(const AddedTokenMatcher&) = delete;  // of_content_ has views into tokens_
  AddedTokenMatcher& operator=(const AddedTokenMatcher&) = delete;

  struct Stretch {
    size_t begin, end;
    std::optional<uint32_t> token;  // nullopt: text between tokens
  };
  bool is_empty() const { return tokens_.empty(); }

  // Appends the stretches that cover the text; none is empty. Special tokens count as text unless
  // takes_special, but even then the text of a special token is not searched for other tokens.
  void split(std::string_view text, bool takes_special, std::vector<Stretch>& out) const;

  // Returns true if no token is found across a place before a space that follows a character other than white
  // space and `marker` (which may be empty).
  bool is_local(std::string_view marker) const;
  // Returns true if the text spells a token across `at`, or next to it but for white space.
  bool may_lie_at(std::string_view text, size_t at) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t i) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, const AddedToken*> of_content_;
  std::vector<std::vector<size_t>> lengths_;  // by first byte: the lengths of the contents, longest first
};

// The added tokens of a tokenizer. The library looks for some of them in the text, and then for the others in
// the normalized text between those.
struct AddedTokens {
  explicit AddedTokens(const std::vector<AddedToken>& added);
  AddedTokens(const std::vector<AddedToken>& added, const Normalizer& normalizer);

  bool may_lie_at(std::string_view text, size_t at) const {
    return in_text.may_lie_at(text, at) || in_normalized.may_lie_at(text, at);
  }

  AddedTokenMatcher in_text, in_normalized;
};

// Appends the ids of all added tokens in a text that is not normalized, and calls encode_rest for the text
// between them.
template <typename EncodeRest>
void encode_around(const AddedTokens& added, std::string_view text, std::vector<uint32_t>& out,
                   EncodeRest&& encode_rest) {
  std::vector<AddedTokenMatcher::Stretch> stretches, inner;
  added.in_text.split(text, true, stretches);
  for (const AddedTokenMatcher::Stretch& stretch : stretches) {
    if (stretch.token) {
      out.push_back(*stretch.token);
      continue;
    }
    const std::string_view rest = text.substr(stretch.begin, stretch.end - stretch.begin);
    inner.clear();
    added.in_normalized.split(rest, true, inner);
    for (const AddedTokenMatcher::Stretch& part : inner) {
      if (part.token)
        out.push_back(*part.token);
      else
        encode_rest(rest.substr(part.begin, part.end - part.begin));
    }
  }
}

}  // namespace ingot
