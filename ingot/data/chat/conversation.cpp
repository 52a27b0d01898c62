#include "ingot/data/chat/conversation.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "ingot/core/error.h"
#include "ingot/data/corpus.h"
#include "ingot/formats/jsonl.h"
#include "ingot/formats/tokenizer/json_node.h"

namespace ingot {
namespace {

constexpr const char* kShapes =
    "messages (role, content), conversations (from, value), or instruction and output";

ChatRole role_of(const JsonNode& node, const std::string& place) {
  const std::string& name = node.text();
  if (name == "system") return ChatRole::kSystem;
  if (name == "user" || name == "human") return ChatRole::kUser;
  if (name == "assistant" || name == "gpt" || name == "chatgpt") return ChatRole::kAssistant;
  fail(ErrorKind::kData,
       "{}: the role \"{}\" is not known; the roles are system, user (human) and assistant (gpt), and tools "
       "are "
       "not supported: correct the line or leave it out",
       place, name);
}

std::vector<ChatMessage> messages_of(const JsonNode& list, const char* role, const char* content,
                                     const std::string& place) {
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode message = list.item(i);
    messages.push_back({role_of(message[role], place), message[content].text()});
  }
  if (messages.empty()) fail(ErrorKind::kData, "{}: the conversation is empty; leave the line out", place);
  return messages;
}

std::vector<ChatPart> parts_of(const JsonNode& list, const std::string& place) {
  std::vector<ChatPart> parts;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode part = list.item(i);
    parts.push_back({.text = part["text"].text(),
                     .is_written = part["is_written"].flag(false),
                     .is_target = part["is_target"].flag(false)});
  }
  if (parts.empty()) fail(ErrorKind::kData, "{}: the conversation is empty; leave the line out", place);
  return parts;
}

// Returns the first line that is not blank of the first file; nullopt if that is no JSON Lines file.
std::optional<std::string> first_line(std::span<const std::string> specs) {
  const std::vector<std::filesystem::path> files = expand_paths(specs.first(1));
  std::filesystem::path name = files.front();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  const std::string extension = name.extension().string();
  if (extension != ".jsonl" && extension != ".ndjson" && extension != ".json") return std::nullopt;
  JsonlReader reader(files.front());
  std::string_view line;
  while (reader.fill(1))
    if (reader.next_line(line)) return std::string(line);
  return std::nullopt;
}

}  // namespace

Conversation parse_conversation(std::string_view line, const std::string& place) {
  const JsonDocument document(line, place);
  const JsonNode root = document.root();
  if (root["messages"].exists())
    return {.messages = messages_of(root["messages"], "role", "content", place), .parts = {}};
  if (root["conversations"].exists())
    return {.messages = messages_of(root["conversations"], "from", "value", place), .parts = {}};
  if (root["parts"].exists()) return {.messages = {}, .parts = parts_of(root["parts"], place)};
  if (!root["instruction"].exists() || !root["output"].exists())
    fail(ErrorKind::kData,
         "{}: is no conversation; a line of chat data has {}: correct the line or leave it out", place,
         kShapes);
  std::string question = root["instruction"].text();
  if (root["input"].is_set() && !root["input"].text().empty()) question += "\n\n" + root["input"].text();
  return {.messages = {{ChatRole::kUser, std::move(question)}, {ChatRole::kAssistant, root["output"].text()}},
          .parts = {}};
}

bool names_chat(std::span<const std::string> specs, const std::string& text_field) {
  if (specs.empty() || specs.front().starts_with("builtin:")) return false;
  const std::optional<std::string> line = first_line(specs);
  if (!line) return false;
  try {
    const JsonDocument document(*line, specs.front());
    const JsonNode root = document.root();
    return !root[text_field.c_str()].exists() &&
           (root["messages"].exists() || root["conversations"].exists() || root["parts"].exists() ||
            (root["instruction"].exists() && root["output"].exists()));
  } catch (const Error&) {  // it is read as text, and that names the fault
    return false;
  }
}

}  // namespace ingot
