// The chat template beside a tokenizer.json. Ingot does not use it, but writes it beside the tokenizers of checkpoints
// and prepared folders as it was.
#pragma once

#include <filesystem>
#include <string>

namespace ingot {

struct ChatTemplate {
  std::string jinja;  // content of chat_template.jinja; empty if there is no such file
  std::string
      json;  // value of chat_template in tokenizer_config.json, a string or a list; empty if it has none

  bool is_empty() const { return jinja.empty() && json.empty(); }
};

// Reads the template from the two files of a folder, which may both be missing. kData error that names the file if
// tokenizer_config.json is not a JSON object.
ChatTemplate read_chat_template(const std::filesystem::path& folder);

// Writes chat_template.jinja, and tokenizer_config.json with the template as its only member; each only if there is
// something for it.
void write_chat_template(const ChatTemplate& chat, const std::filesystem::path& folder);

inline constexpr const char* kChatTemplateFile = "chat_template.jinja";
inline constexpr const char* kChatTemplateKey = "chat_template";

}  // namespace ingot
