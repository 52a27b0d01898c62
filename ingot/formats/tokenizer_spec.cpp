#include "ingot/formats/tokenizer_spec.h"

#include <array>
#include <string_view>
#include <unordered_map>

#include "ingot/core/error.h"

namespace ingot {

std::string printable_token(const std::string& token) {
  constexpr size_t kShown = 40;
  std::string text;
  for (size_t i = 0; i < token.size() && i < kShown; ++i) {
    const auto byte = static_cast<uint8_t>(token[i]);
    if (byte >= 32 && byte < 127)
      text.push_back(token[i]);
    else
      text += fmt::format("\\x{:02x}", byte);
  }
  return token.size() > kShown ? text + "..." : text;
}

void check_spec(const TokenizerSpec& spec, const std::string& name) {
  std::unordered_map<std::string_view, size_t> id_of;
  id_of.reserve(spec.tokens.size());
  std::array<bool, 256> has_byte{};
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& token = spec.tokens[id];
    if (token.empty()) continue;
    if (token.size() == 1) has_byte[static_cast<uint8_t>(token[0])] = true;
    const auto [first, is_new] = id_of.try_emplace(token, id);
    if (!is_new)
      fail(ErrorKind::kData, "{}: token '{}' has two ids, {} and {}; keep one", name, printable_token(token),
           first->second, id);
  }
  if (id_of.empty()) fail(ErrorKind::kData, "{}: the vocabulary is empty", name);
  const bool is_pipeline = spec.kind == TokenizerSpec::Kind::kPipeline;
  if (is_pipeline ? spec.pipeline.is_byte_level && !spec.pipeline.unknown && !spec.pipeline.has_byte_fallback
                  : spec.kind == TokenizerSpec::Kind::kByteBpe)
    for (size_t byte = 0; byte < 256; ++byte)
      if (!has_byte[byte])
        fail(ErrorKind::kData,
             "{}: the vocabulary lacks a token for byte 0x{:02x}; a byte-level vocabulary needs all 256",
             name, byte);
  std::unordered_map<uint32_t, const AddedToken*> added;
  for (const AddedToken& token : spec.added) {
    if (token.content.empty())
      fail(ErrorKind::kData, "{}: the added token with id {} is empty", name, token.id);
    const bool may_be_ordinary = is_pipeline && !token.is_special;
    if (token.id < spec.tokens.size() && !spec.tokens[token.id].empty() && !may_be_ordinary)
      fail(ErrorKind::kData, "{}: added token '{}' has id {}, which is the id of '{}'", name,
           printable_token(token.content), token.id, printable_token(spec.tokens[token.id]));
    const auto [first, is_new] = added.try_emplace(token.id, &token);
    if (!is_new)
      fail(ErrorKind::kData, "{}: added tokens '{}' and '{}' have the same id {}", name,
           printable_token(first->second->content), printable_token(token.content), token.id);
  }
}

}  // namespace ingot
