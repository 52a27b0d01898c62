// ChatSession is a conversation with a model. The keys and values of what was said stay in the model's cache,
// so that each turn reads only what is new.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/checkpoint/served_model.h"
#include "ingot/data/chat/chat_template.h"
#include "ingot/infer/generate.h"
#include "ingot/ops/sample.h"

namespace ingot {

struct ChatOptions {
  ServedOptions model;
  std::string template_name;  // a known template; empty: the one in the model's folder
  std::string system;         // the system message; empty: none
  int64_t tokens = 1024;      // of an answer, at most
  SampleConfig sample;
  uint64_t seed = 1337;
};

struct ChatAnswer {
  // kCut: after ChatOptions::tokens. kContext: the context is full. kStopped: `write` returned false.
  enum class End { kModel, kCut, kContext, kStopped };
  End end = End::kModel;
  int64_t tokens = 0;     // of the answer
  int64_t read = 0;       // tokens that the model read before it
  int64_t forgotten = 0;  // messages at the beginning that no longer fit into the context
  double read_s = 0, answer_s = 0;
};

class ChatSession {
 public:
  // Throws the errors of ServedModel and ChatTemplate.
  ChatSession(const std::filesystem::path& model, const ChatOptions& options);

  // Adds a question and the model's answer, whose text is passed to `write` as soon as characters are
  // complete. Of a conversation that is too long the oldest exchanges are left out, so that a quarter of the
  // context is free for the answer. If `write` returns false the answer ends there. Throws a kData error, and
  // adds nothing, if the template cannot express the conversation or the question alone is too long.
  ChatAnswer ask(std::string question, const std::function<bool(std::string_view piece)>& write);

  // Forgets all messages but the system's.
  void reset();

  std::span<const ChatMessage> messages() const { return messages_; }
  std::string_view template_name() const { return template_.name(); }
  const std::filesystem::path& path() const { return served_.path(); }

 private:
  // Returns the tokens that the model reads before it answers, and sets `forgotten`.
  std::vector<TokenId> prompt(int64_t& forgotten) const;

  ChatOptions options_;
  ServedModel served_;
  ChatTemplate template_;
  std::vector<TokenId> stops_;
  std::vector<ChatMessage> messages_;
  Region region_;
  std::optional<Generator> generator_;
  uint64_t turns_ = 0;
};

// Returns the conversation as a line of chat data (data/chat/conversation.h).
std::string chat_line(std::span<const ChatMessage> messages);

}  // namespace ingot
