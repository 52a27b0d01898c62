// Chat data for training: conversations become tokens of which some are targets, and are packed whole into
// windows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ingot/data/chat/chat_template.h"
#include "ingot/data/chat/conversation.h"
#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

struct ChatTokens {
  std::vector<TokenId> ids;
  std::vector<bool> is_target;  // per id: the loss counts its prediction
  // For a pair of answers, each behind its prompt: the index where the rejected one begins; 0: no pair.
  size_t rejected_at = 0;
};

// Tokenizes a rendered conversation as a whole, with the special tokens of the template. If a content spells
// a special token, it stays ordinary text, and the parts of this conversation are tokenized one by one. A
// token that is only partly in a target part is a target.
ChatTokens tokenize_parts(std::span<const ChatPart> parts, const Tokenizer& tokenizer);

struct ChatFormat {
  const Tokenizer& tokenizer;
  std::string template_name;  // data.chat_template; empty: the tokenizer's own
  std::string source;         // names the tokenizer in errors
  LossOn loss_on = LossOn::kAssistant;
  int64_t context = 0;  // most tokens of a conversation
};

struct Chats {
  std::vector<ChatTokens> conversations;
  int64_t cut = 0;       // conversations that lost their last turns
  int64_t left_out = 0;  // conversations whose first exchange is longer than the context
};

// Reads the conversations of JSON Lines files (specs as in expand_paths), in order. A conversation longer
// than the context loses its last turns, so that the last one left is an assistant's. Throws the errors of
// parse_conversation and ChatTemplate, and a kData error for a conversation without targets or if none is
// left. Files of pairs of answers hold nothing else; the targets of an answer are all tokens behind the
// prompt, as in trl, and a pair longer than the context is left out. `progress` is called with the bytes read
// and in total.
Chats read_chats(std::span<const std::string> specs, const ChatFormat& format,
                 const std::function<void(int64_t done, int64_t total)>& progress = {});

// Moves the last conversations, at least one, out of `train`, for validation. Throws a kUsage error if the
// fraction is 0 or there is only one.
Chats split_off_chats(Chats& train, double val_fraction);

// Returns how many conversations have the same tokens as one of the others.
int64_t conversations_also_in(const Chats& chats, const Chats& others);

// Packs conversations into windows of `context` tokens: each window takes, among the next kPackingLookAhead
// conversations that are left, every one that still fits, in order. The rest of a window is padding without
// targets. Conversations, the two answers of a pair, and padding are documents. The stream ends with one
// token more, the target of the last position.
TokenSource pack(std::span<const ChatTokens> conversations, int64_t context, int64_t vocab_size);
inline constexpr size_t kPackingLookAhead = 256;

// "980 conversations in 120 windows (93.1 % full), 41.2 % of their tokens are targets; 12 were cut at
// model.context, 3 left out".
std::string summary_of(const Chats& chats, int64_t windows, int64_t context);

}  // namespace ingot
