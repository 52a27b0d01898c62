#include "ingot/data/tokenizer/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <functional>

#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace {

// Returns the offset of the character that ends at `end`. REQUIRES: end > 0.
size_t character_before(std::string_view text, size_t end) {
  size_t i = end - 1;
  while (i > 0 && end - i < 4 && (static_cast<uint8_t>(text[i]) & 0xC0u) == 0x80u) --i;
  return i + decode_utf8(text, i).length_bytes == end ? i : end - 1;
}

// \w of Rust's regular expressions, but for the few symbols that are Alphabetic.
bool is_word(CodePoint c) {
  if (!c.is_valid()) return false;
  const CharClass kind = char_class(c.value);
  if (kind == CharClass::kUpper || kind == CharClass::kLower || kind == CharClass::kLetter ||
      kind == CharClass::kMark)
    return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c.value));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || c.value == 0x200C || c.value == 0x200D;
}

bool is_space_at(std::string_view text, size_t i) {
  const CodePoint c = decode_utf8(text, i);
  return c.is_valid() && char_class(c.value) == CharClass::kSpace;
}

bool is_single_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word(decode_utf8(text, character_before(text, begin)))) return false;
  return end == text.size() || !is_word(decode_utf8(text, end));
}

std::vector<AddedToken> tokens_where(const std::vector<AddedToken>& added, bool is_normalized,
                                     const Normalizer& normalizer) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : added) {
    if (token.is_normalized != is_normalized) continue;
    tokens.push_back(token);
    std::string storage;
    if (is_normalized) tokens.back().content = std::string(normalizer.apply(token.content, true, storage));
  }
  return tokens;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& added) : AddedTokens(added, Normalizer({})) {}
AddedTokens::AddedTokens(const std::vector<AddedToken>& added, const Normalizer& normalizer)
    : in_text(tokens_where(added, false, normalizer)), in_normalized(tokens_where(added, true, normalizer)) {}

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), lengths_(256) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  for (const AddedToken& token : tokens_) {
    of_content_.emplace(token.content, &token);
    lengths_[static_cast<uint8_t>(token.content[0])].push_back(token.content.size());
  }
  for (std::vector<size_t>& lengths : lengths_) {
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  }
}

bool AddedTokenMatcher::may_lie_at(std::string_view text, size_t at) const {
  size_t first = at, last = at;  // Tokens that strip take the white space in between.
  while (first > 0 && is_space_at(text, character_before(text, first))) first = character_before(text, first);
  while (last < text.size() && is_space_at(text, last)) last += decode_utf8(text, last).length_bytes;
  return std::ranges::any_of(tokens_, [&](const AddedToken& token) {
    const std::string& content = token.content;
    const size_t begin = first - std::min(first, content.size());
    const size_t found = text.substr(0, std::min(text.size(), last + content.size())).find(content, begin);
    return found != std::string_view::npos;
  });
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t i) const {
  for (const size_t length : lengths_[static_cast<uint8_t>(text[i])]) {
    if (length > text.size() - i) continue;
    const auto found = of_content_.find(text.substr(i, length));
    if (found != of_content_.end()) return found->second;
  }
  return nullptr;
}

void AddedTokenMatcher::split(std::string_view text, bool takes_special, std::vector<Stretch>& out) const {
  size_t taken = 0;  // text before this offset is in `out`
  for (size_t i = 0; i < text.size() && !tokens_.empty();) {
    if (lengths_[static_cast<uint8_t>(text[i])].empty()) {
      ++i;
      continue;
    }
    const AddedToken* token = longest_at(text, i);
    if (!token) {
      ++i;
      continue;
    }
    size_t begin = i, end = i + token->content.size();
    i = end;
    if ((token->is_special && !takes_special) || (token->is_single_word && !is_single_word(text, begin, end)))
      continue;
    while (token->strips_left && begin > taken && is_space_at(text, character_before(text, begin)))
      begin = character_before(text, begin);
    begin = std::max(begin, taken);
    while (token->strips_right && end < text.size() && is_space_at(text, end))
      end += decode_utf8(text, end).length_bytes;
    if (taken < begin) out.push_back({taken, begin, std::nullopt});
    out.push_back({begin, end, token->id});
    taken = end;
  }
  if (taken < text.size()) out.push_back({taken, text.size(), std::nullopt});
}

bool AddedTokenMatcher::is_local(std::string_view marker) const {
  return std::none_of(tokens_.begin(), tokens_.end(), [&](const AddedToken& token) {
    if (token.strips_right) return true;
    const std::string& text = token.content;
    for (size_t i = 1; i < text.size(); ++i) {
      const bool is_marker = !marker.empty() && std::string_view(text).substr(i).starts_with(marker);
      const bool follows_marker = !marker.empty() && std::string_view(text).substr(0, i).ends_with(marker);
      if ((text[i] == ' ' || is_marker) && !follows_marker && !is_space_at(text, character_before(text, i)))
        return true;
    }
    return false;
  });
}

}  // namespace ingot
