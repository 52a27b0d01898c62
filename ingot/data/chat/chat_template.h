// Renders conversations as the chat template of a model does. A template is a Jinja program. The published
// ones are rows of a table, known by their exact texts, and Ingot renders them as transformers does; it runs
// no Jinja.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/chat/conversation.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

struct ChatRow;  // of the table

// Returns the hash by which the table knows the text of a template. Line ends of Windows and one newline at
// the end do not count, as in Jinja.
uint64_t chat_template_hash(std::string_view jinja);

// Returns the row's name of a known template; empty if it is unknown.
std::string_view known_chat_template(std::string_view jinja);

// "chatml, llama2, ..."
std::string chat_template_names();

class ChatTemplate {
 public:
  // Takes the template with this name; if the name is empty, the one in the tokenizer's side files. Throws a
  // kUsage error if there is none, it is unknown, or the tokenizer lacks a token of it. `source` names the
  // tokenizer.
  ChatTemplate(const std::string& name, const Tokenizer& tokenizer, const std::string& source);
  // Takes the row of this name with these tokens. REQUIRES: there is such a row.
  ChatTemplate(std::string_view name, std::string bos, std::string eos);

  // Throws a kData error, which begins with `place`, if the template cannot express the conversation.
  std::vector<ChatPart> render(std::span<const ChatMessage> messages, const std::string& place) const;

  // Returns the text that makes the model answer: transformers writes it for add_generation_prompt.
  std::string generation_prompt() const;
  // Returns the token that ends an assistant's turn, as text.
  std::string answer_end() const;

  std::string_view name() const;

 private:
  std::string expanded(std::string_view text) const;

  const ChatRow* row_;
  std::string bos_, eos_;
};

}  // namespace ingot
