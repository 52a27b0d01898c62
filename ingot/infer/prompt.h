// Prompts: the tokens that a model reads before it writes, and those that end what it writes.
#pragma once

#include <span>
#include <vector>

#include "ingot/data/chat/chat_template.h"
#include "ingot/data/chat/conversation.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

// Throws a kData error, which begins with "the conversation", if the template cannot express it.
std::vector<TokenId> chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                 std::span<const ChatMessage> messages);

// Returns the tokens at which a text of the model ends: those of its folder, and the one between documents.
std::vector<TokenId> text_ends(const Tokenizer& tokenizer);
// Returns those and the one of the template.
std::vector<TokenId> answer_ends(const Tokenizer& tokenizer, const ChatTemplate& chat);

// Returns the tokens that an empty prompt stands for: the one between documents, else a newline, else the
// first token.
std::vector<TokenId> empty_prompt(const Tokenizer& tokenizer);

}  // namespace ingot
