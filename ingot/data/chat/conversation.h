// Conversations from JSON Lines, one per line, in one of these shapes:
//   {"messages": [{"role": "user", "content": "..."}, ...]}
//   {"conversations": [{"from": "human", "value": "..."}, ...]}                 (ShareGPT)
//   {"instruction": "...", "input": "...", "output": "..."}                     (Alpaca)
//   {"parts": [{"text": "...", "is_written": true, "is_target": true}, ...]}    (rendered before)
// and pairs of answers to the same prompt, for DPO:
//   {"prompt": [{"role": "user", "content": "..."}, ...], "chosen": [...], "rejected": [...]}
// Without a prompt, the messages that both answers begin with are the prompt. All three may be texts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// The tokens whose predictions the loss counts: those of the assistant's turns, or all.
enum class LossOn { kAssistant, kAll };

enum class ChatRole { kSystem, kUser, kAssistant };

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;
};

// A piece of the text that the model reads.
struct ChatPart {
  std::string text;
  bool is_written = false;  // a content, in which no special token is looked for
  bool is_target = false;   // it belongs to an assistant's turn: its content, or the token that ends it
};

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<ChatPart> parts;  // if the file has them; then there are no messages
};

// Parses a line. `place` is "FILE:LINE", for errors. Throws a kData error if the line has none of the shapes,
// no message, an unknown role, or a content that is not a text.
Conversation parse_conversation(std::string_view line, const std::string& place);

// A prompt with two answers: messages, which a template renders, or texts.
struct AnswerPair {
  std::vector<ChatMessage> prompt, chosen, rejected;  // A text is one message, whose role means nothing.
  bool is_text = false;
};

// Returns true if the line has both answers.
bool is_answer_pair(std::string_view line, const std::string& place);

// Parses such a line. Throws a kData error for anything else, for an answer without messages, and for texts
// without a prompt.
AnswerPair parse_answer_pair(std::string_view line, const std::string& place);

// Returns true if the specs (as in expand_paths) name chat data: if the first line of the first file is a
// JSON object in one of the shapes that has no member called `text_field`.
bool names_chat(std::span<const std::string> specs, const std::string& text_field);

}  // namespace ingot
