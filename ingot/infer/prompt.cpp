#include "ingot/infer/prompt.h"

#include <optional>
#include <string>

#include "ingot/core/error.h"
#include "ingot/data/chat/chat_data.h"

namespace ingot {

std::vector<TokenId> chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                 std::span<const ChatMessage> messages) {
  std::vector<ChatPart> parts = chat.render(messages, "the conversation");
  parts.push_back({.text = chat.generation_prompt()});
  return tokenize_parts(parts, tokenizer).ids;
}

std::vector<TokenId> text_ends(const Tokenizer& tokenizer) {
  std::vector<TokenId> ends = tokenizer.eos_ids();
  if (tokenizer.end_of_text()) ends.push_back(*tokenizer.end_of_text());
  return ends;
}

std::vector<TokenId> answer_ends(const Tokenizer& tokenizer, const ChatTemplate& chat) {
  std::vector<TokenId> ends = text_ends(tokenizer);
  const std::vector<TokenId> end = encode_with_special(tokenizer, chat.answer_end());
  if (end.size() == 1) ends.push_back(end.front());
  return ends;
}

std::vector<TokenId> empty_prompt(const Tokenizer& tokenizer) {
  if (const std::optional<TokenId> end = tokenizer.end_of_text()) return {*end};
  try {
    if (std::vector<TokenId> newline = encode(tokenizer, "\n"); !newline.empty()) return newline;
  } catch (const Error&) {
    // a vocabulary of characters without a newline
  }
  std::string bytes;
  for (TokenId id = 0;; ++id) try {
      tokenizer.append_bytes(id, bytes);
      return {id};
    } catch (const Error&) {
      if (id + 1 >= tokenizer.vocab_size()) throw;
    }
}

}  // namespace ingot
