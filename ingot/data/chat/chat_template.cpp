#include "ingot/data/chat/chat_template.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {

// The strings around a content. Those of an assistant's turn end with `after`, whose token ends the turn and
// is a target; `tail` is not.
struct ChatTurn {
  std::string_view before, after, tail = {};
};

enum class SystemPlace { kTurn, kFirstUser, kNone };  // kFirstUser: inside of the first user's turn
enum class Trim { kNothing, kAssistant, kAll };

// {bos} and {eos} stand for the tokenizer's tokens.
struct ChatRow {
  std::string_view name;
  std::string_view begin;  // before the first turn
  ChatTurn system, user, assistant;
  SystemPlace system_place = SystemPlace::kTurn;
  std::optional<std::string_view> default_system = {};  // if the conversation has no system message
  std::string_view preamble = {};                       // It begins the first system message.
  Trim trim = Trim::kNothing;
  bool alternates = false;                      // user and assistant must alternate
  bool drops_thoughts = false;                  // An assistant's content begins after its last </think>.
  bool is_system_first = false;                 // a system message can only be the first one
  std::array<std::string_view, 3> tokens = {};  // The vocabulary must have them, as it must {bos} and {eos}.
  // Before an answer that the model gives, if that is not what precedes one in a conversation.
  std::optional<std::string_view> generation_prompt = {};
};

namespace {

constexpr ChatTurn im_turn(std::string_view before) { return {before, "<|im_end|>", "\n"}; }
constexpr ChatTurn kImSystem = im_turn("<|im_start|>system\n"), kImUser = im_turn("<|im_start|>user\n"),
                   kImAssistant = im_turn("<|im_start|>assistant\n");
constexpr std::array<std::string_view, 3> kImTokens = {"<|im_start|>", "<|im_end|>"};
constexpr ChatTurn kLlamaSystem = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
                   kLlamaUser = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
                   kLlamaAssistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"};
constexpr std::array<std::string_view, 3> kLlamaTokens = {"<|start_header_id|>", "<|end_header_id|>",
                                                          "<|eot_id|>"};
constexpr std::string_view kDeepseekEnd = "<｜end▁of▁sentence｜>";

constexpr ChatRow kRows[] = {
    {.name = "chatml",
     .begin = "",
     .system = kImSystem,
     .user = kImUser,
     .assistant = kImAssistant,
     .tokens = kImTokens},
    {.name = "llama2",
     .begin = "",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {"{bos}[INST] ", " [/INST]"},
     .assistant = {" ", " {eos}"},
     .system_place = SystemPlace::kFirstUser,
     .trim = Trim::kAll,
     .alternates = true,
     .generation_prompt = ""},
    {.name = "llama3",
     .begin = "{bos}",
     .system = kLlamaSystem,
     .user = kLlamaUser,
     .assistant = kLlamaAssistant,
     .trim = Trim::kAll,
     .tokens = kLlamaTokens},
    {.name = "llama3.1",
     .begin = "{bos}",
     .system = kLlamaSystem,
     .user = kLlamaUser,
     .assistant = kLlamaAssistant,
     .default_system = "",
     .preamble = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
     .trim = Trim::kAll,
     .tokens = kLlamaTokens},
    {.name = "mistral-v0.1",
     .begin = "{bos}",
     .system = {},
     .user = {"[INST] ", " [/INST]"},
     .assistant = {"", "{eos}", " "},
     .system_place = SystemPlace::kNone,
     .alternates = true,
     .generation_prompt = ""},
    {.name = "mistral-v0.2",
     .begin = "{bos}",
     .system = {},
     .user = {"[INST] ", " [/INST]"},
     .assistant = {"", "{eos}"},
     .system_place = SystemPlace::kNone,
     .alternates = true,
     .generation_prompt = ""},
    {.name = "mistral-v0.3",
     .begin = "{bos}",
     .system = {"", "\n\n"},
     .user = {"[INST] ", "[/INST]"},
     .assistant = {" ", "{eos}"},
     .system_place = SystemPlace::kFirstUser,
     .trim = Trim::kAssistant,
     .alternates = true,
     .tokens = {"[INST]", "[/INST]"},
     .generation_prompt = ""},
    {.name = "qwen2",
     .begin = "",
     .system = kImSystem,
     .user = kImUser,
     .assistant = kImAssistant,
     .default_system = "You are a helpful assistant.",
     .tokens = kImTokens},
    {.name = "qwen2.5",
     .begin = "",
     .system = kImSystem,
     .user = kImUser,
     .assistant = kImAssistant,
     .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
     .tokens = kImTokens},
    {.name = "smollm2",
     .begin = "",
     .system = kImSystem,
     .user = kImUser,
     .assistant = kImAssistant,
     .default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
     .tokens = kImTokens},
    {.name = "zephyr",
     .begin = "",
     .system = {"<|system|>\n", "{eos}", "\n"},
     .user = {"<|user|>\n", "{eos}", "\n"},
     .assistant = {"<|assistant|>\n", "{eos}", "\n"}},
    {.name = "deepseek-llm",
     .begin = "{bos}",
     .system = {"", "\n\n"},
     .user = {"User: ", "\n\n"},
     .assistant = {"Assistant: ", "{eos}"},
     .generation_prompt = "Assistant:"},
    {.name = "deepseek-v3",
     .begin = "{bos}",
     .system = {"", ""},
     .user = {"<｜User｜>", ""},
     .assistant = {"<｜Assistant｜>", kDeepseekEnd},
     .drops_thoughts = true,
     .is_system_first = true,
     .tokens = {"<｜User｜>", "<｜Assistant｜>", kDeepseekEnd},
     .generation_prompt = "<｜Assistant｜><think>\n"},
};

// Hashes of published templates. tests/golden/chat has their texts.
struct KnownText {
  uint64_t hash;
  std::string_view name;
};
constexpr KnownText kTexts[] = {
    {0xa04f41d813a07b13, "chatml"},       {0x846f9032c2079ea2, "chatml"},
    {0xda206a9e46a4ac01, "chatml"},       {0x4c6e807ee5fe9f4a, "chatml"},
    {0xf64ecff9c8ef587d, "deepseek-llm"}, {0xaccdd56957c43587, "deepseek-llm"},
    {0x55b25ceb4910aa64, "deepseek-v3"},  {0x56a138c31521e7c8, "deepseek-v3"},
    {0xcb7c5112dfc4a3b0, "llama2"},       {0x8e30cf11bd23649b, "llama2"},
    {0xffa4fad9a912e721, "llama2"},       {0x24f6d97f87d647f5, "llama2"},
    {0x866fc8fa50da12fe, "llama3"},       {0x6ca7779b7730196a, "llama3.1"},
    {0x9799ad6e2dea0594, "llama3"},       {0xb7f52373b11c60d7, "mistral-v0.1"},
    {0xa5d004210ebce758, "mistral-v0.2"}, {0x8f56a617f1d50700, "mistral-v0.3"},
    {0xd5d943bd0bd9082f, "qwen2"},        {0x2469c9508f79506e, "qwen2.5"},
    {0xc79034a9d5f0ae58, "qwen2"},        {0x83059ddcb62b07a0, "smollm2"},
    {0x99ab995e9629dacd, "smollm2"},      {0x1db34e9fc60441d8, "zephyr"},
    {0xd9fe74edcb57aa82, "zephyr"},
};

const ChatRow* row_of(std::string_view name) {
  const auto* found = std::ranges::find(kRows, name, &ChatRow::name);
  return found == std::end(kRows) ? nullptr : found;
}

// str.isspace() of Python.
bool is_python_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

std::string_view left_trimmed(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text, 0);
    if (!c.is_valid() || !is_python_space(c.value)) break;
    text.remove_prefix(c.length_bytes);
  }
  return text;
}

std::string_view right_trimmed(std::string_view text) {
  size_t end = 0;  // It is where the last character that is no space ends.
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    i += c.length_bytes;
    if (!c.is_valid() || !is_python_space(c.value)) end = i;
  }
  return text.substr(0, end);
}

std::string_view after_thoughts(std::string_view text) {
  constexpr std::string_view kEnd = "</think>";
  const size_t found = text.rfind(kEnd);
  return found == std::string_view::npos ? text : text.substr(found + kEnd.size());
}

void add_part(std::vector<ChatPart>& parts, std::string text, bool is_written, bool is_target) {
  if (!text.empty()) parts.push_back({std::move(text), is_written, is_target});
}

bool uses(const ChatRow& row, std::string_view token) {
  return std::ranges::any_of(
      std::array{row.begin, row.user.before, row.user.after, row.assistant.before, row.assistant.after},
      [&](std::string_view text) { return text.find(token) != std::string_view::npos; });
}

// Returns the text of the template in a tokenizer's side files; empty if they have none.
std::string template_text(const TokenizerSideFiles& side, const std::string& source) {
  if (!side.chat_jinja.empty() || side.chat_json.empty()) return side.chat_jinja;
  const auto json = nlohmann::json::parse(side.chat_json, nullptr, false);
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array())
    for (const auto& item : json)
      if (item.is_object() && item.value("name", nlohmann::json()) == "default" &&
          item.contains("template") && item["template"].is_string())
        return item["template"].get<std::string>();
  fail(ErrorKind::kUsage,
       "{}: chat_template in tokenizer_config.json is neither a text nor a list with a template called "
       "\"default\"; "
       "correct it, or set data.chat_template to one of {}",
       source, chat_template_names());
}

std::string named_in(const TokenizerSideFiles& side, const char* name) {
  const auto found = side.tokens.find(name);
  return found == side.tokens.end() ? std::string() : found->second;
}

const ChatRow& chosen_row(const std::string& name, const Tokenizer& tokenizer, const std::string& source) {
  if (!name.empty()) {
    if (const ChatRow* row = row_of(name)) return *row;
    fail(ErrorKind::kUsage, "data.chat_template must be one of {}, got \"{}\"", chat_template_names(), name);
  }
  const std::string text = template_text(tokenizer.side_files(), source);
  if (text.empty())
    fail(ErrorKind::kUsage,
         "{}: there is no chat template with this tokenizer (chat_template.jinja, or chat_template in "
         "tokenizer_config.json); set data.chat_template to one of {}",
         source, chat_template_names());
  if (const ChatRow* row = row_of(known_chat_template(text))) return *row;
  if (text.find("{{") == std::string::npos && text.find("{%") == std::string::npos)
    fail(ErrorKind::kUsage,
         "{}: the chat template is no template, since it has neither {{{{ nor {{%; correct it, or set "
         "data.chat_template to one of {}",
         source, chat_template_names());
  fail(ErrorKind::kUsage,
       "{}: Ingot does not know this chat template; render the conversations with it first, by python3 "
       "examples/data/render_chat.py FILE.jsonl --model FOLDER --out RENDERED.jsonl, and train on "
       "RENDERED.jsonl; or "
       "set data.chat_template to one of {}",
       source, chat_template_names());
}

}  // namespace

uint64_t chat_template_hash(std::string_view jinja) {
  std::string text;
  for (size_t i = 0; i < jinja.size(); ++i)
    if (jinja[i] != '\r' || i + 1 == jinja.size() || jinja[i + 1] != '\n') text += jinja[i];
  if (text.ends_with('\n')) text.pop_back();
  return XXH3_64bits(text.data(), text.size());
}

std::string_view known_chat_template(std::string_view jinja) {
  const auto* found = std::ranges::find(kTexts, chat_template_hash(jinja), &KnownText::hash);
  return found == std::end(kTexts) ? std::string_view() : found->name;
}

std::string chat_template_names() {
  std::string names;
  for (const ChatRow& row : kRows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

ChatTemplate::ChatTemplate(std::string_view name, std::string bos, std::string eos)
    : row_(row_of(name)), bos_(std::move(bos)), eos_(std::move(eos)) {
  INGOT_CHECK(row_ != nullptr, "ChatTemplate: there is no template called {}", name);
}

ChatTemplate::ChatTemplate(const std::string& name, const Tokenizer& tokenizer, const std::string& source)
    : row_(&chosen_row(name, tokenizer, source)),
      bos_(named_in(tokenizer.side_files(), "bos_token")),
      eos_(named_in(tokenizer.side_files(), "eos_token")) {
  if (eos_.empty() && tokenizer.end_of_text()) tokenizer.append_bytes(*tokenizer.end_of_text(), eos_);
  std::vector<std::string> needed(row_->tokens.begin(), row_->tokens.end());
  std::erase(needed, "");
  for (const auto& [mark, token] : {std::pair("{bos}", &bos_), std::pair("{eos}", &eos_)})
    if (uses(*row_, mark)) needed.push_back(*token);
  for (const std::string& token : needed)
    if (token.empty() || encode_with_special(tokenizer, token).size() != 1)
      fail(ErrorKind::kUsage,
           "{}: the tokenizer has no token {}, which the chat template {} needs; take the tokenizer of a "
           "chat model, "
           "or another template (data.chat_template; zephyr needs only a token that ends texts)",
           source, token.empty() ? "called bos_token or eos_token in tokenizer_config.json" : token,
           row_->name);
}

std::string_view ChatTemplate::name() const { return row_->name; }

std::string ChatTemplate::generation_prompt() const {
  return expanded(row_->generation_prompt.value_or(row_->assistant.before));
}

std::string ChatTemplate::answer_end() const {
  std::string_view end = row_->assistant.after;
  while (end.starts_with(' ')) end.remove_prefix(1);
  return expanded(end);
}

std::string ChatTemplate::expanded(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    const bool is_bos = text.starts_with("{bos}"), is_eos = text.starts_with("{eos}");
    if (is_bos || is_eos)
      out += is_bos ? bos_ : eos_;
    else
      out += text.front();
    text.remove_prefix(is_bos || is_eos ? 5 : 1);
  }
  return out;
}

std::vector<ChatPart> ChatTemplate::render(std::span<const ChatMessage> messages,
                                           const std::string& place) const {
  const auto refuse = [&](std::string_view fault) {
    fail(ErrorKind::kData, "{}: the chat template {} {}; correct the line or leave it out", place, row_->name,
         fault);
  };
  std::vector<ChatPart> parts;
  const auto add = [&](std::string_view text, bool is_target = false) {
    add_part(parts, expanded(text), false, is_target);
  };
  add(row_->begin);
  const ChatMessage* merged = nullptr;  // the system message that belongs into the first user's turn
  const bool has_system = !messages.empty() && messages.front().role == ChatRole::kSystem;
  if (has_system && row_->system_place == SystemPlace::kNone) refuse("has no place for a system message");
  if (has_system && row_->system_place == SystemPlace::kFirstUser) {
    merged = &messages.front();
    messages = messages.subspan(1);
  }
  if (!has_system && row_->default_system) {
    add(row_->system.before);
    add(row_->preamble);
    add(*row_->default_system);
    add(row_->system.after);
    add(row_->system.tail);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    const bool is_system = role == ChatRole::kSystem, is_assistant = role == ChatRole::kAssistant;
    if (row_->alternates && (role == ChatRole::kUser) != (i % 2 == 0))
      refuse("has user and assistant alternate, and begins with the user");
    if (is_system && i > 0 && row_->is_system_first) refuse("has its system message first");
    const ChatTurn& turn = is_system ? row_->system : is_assistant ? row_->assistant : row_->user;
    std::string_view text = content;
    if (is_assistant && row_->drops_thoughts) text = after_thoughts(text);
    const bool is_trimmed = row_->trim == Trim::kAll || (row_->trim == Trim::kAssistant && is_assistant);
    if (is_trimmed) text = right_trimmed(text);
    add(turn.before);
    if (is_system && i == 0) add(row_->preamble);
    if (merged) {
      add(row_->system.before);
      add_part(parts, merged->content, true, false);
      add(is_trimmed && text.empty() ? right_trimmed(row_->system.after) : row_->system.after);
      merged = nullptr;
    } else if (is_trimmed) {
      text = left_trimmed(text);
    }
    add_part(parts, std::string(text), true, is_assistant);
    add(turn.after, is_assistant);
    add(turn.tail);
  }
  return parts;
}

}  // namespace ingot
