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

bool has_answers(const JsonNode& root) { return root["chosen"].exists() && root["rejected"].exists(); }

}  // namespace

bool is_answer_pair(std::string_view line, const std::string& place) {
  return has_answers(JsonDocument(line, place).root());
}

AnswerPair parse_answer_pair(std::string_view line, const std::string& place) {
  const JsonDocument document(line, place);
  const JsonNode root = document.root();
  if (!has_answers(root))
    fail(ErrorKind::kData,
         "{}: is no pair of answers, as the first line of the file is; a pair has prompt, chosen and "
         "rejected: "
         "correct the line or leave it out",
         place);
  AnswerPair pair{.prompt = {}, .chosen = {}, .rejected = {}, .is_text = !root["chosen"].is_list()};
  const auto read = [&](const char* name) -> std::vector<ChatMessage> {
    if (pair.is_text) return {{ChatRole::kAssistant, root[name].text()}};
    return messages_of(root[name], "role", "content", place);
  };
  pair.chosen = read("chosen");
  pair.rejected = read("rejected");
  if (root["prompt"].is_set()) {
    pair.prompt = read("prompt");
    return pair;
  }
  if (pair.is_text)
    fail(ErrorKind::kData, "{}: its answers are texts, and there is no prompt; give one, or messages", place);
  const auto is_same = [](const ChatMessage& a, const ChatMessage& b) {
    return a.role == b.role && a.content == b.content;
  };
  const auto differ = std::ranges::mismatch(pair.chosen, pair.rejected, is_same).in1;
  const auto shared = differ - pair.chosen.begin();
  pair.prompt.assign(pair.chosen.begin(), differ);
  for (std::vector<ChatMessage>* answer : {&pair.chosen, &pair.rejected})
    answer->erase(answer->begin(), answer->begin() + shared);
  if (pair.prompt.empty() || pair.chosen.empty() || pair.rejected.empty())
    fail(ErrorKind::kData,
         "{}: chosen and rejected must begin with the same messages, which are the prompt, and then differ; "
         "correct the line or leave it out",
         place);
  return pair;
}

Conversation parse_conversation(std::string_view line, const std::string& place) {
  const JsonDocument document(line, place);
  const JsonNode root = document.root();
  if (root["messages"].exists())
    return {.messages = messages_of(root["messages"], "role", "content", place), .parts = {}};
  if (root["conversations"].exists())
    return {.messages = messages_of(root["conversations"], "from", "value", place), .parts = {}};
  if (root["parts"].exists()) return {.messages = {}, .parts = parts_of(root["parts"], place)};
  if (has_answers(root))
    fail(ErrorKind::kData, "{}: is a pair of answers, as the first line of the file is not; leave it out",
         place);
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
           (has_answers(root) || root["messages"].exists() || root["conversations"].exists() ||
            root["parts"].exists() || (root["instruction"].exists() && root["output"].exists()));
  } catch (const Error&) {  // it is read as text, and that names the fault
    return false;
  }
}

}  // namespace ingot
