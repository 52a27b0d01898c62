// The side files of a tokenizer.json lie in the same folder. They name the tokens that begin, end and pad
// texts, and hold the chat template. Ingot ends generated text at these end tokens, and writes side
// files next to the tokenizers of checkpoints, exports and prepared folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

struct TokenizerSideFiles {
  std::string chat_jinja;  // content of chat_template.jinja; empty if there is no such file
  std::string
      chat_json;  // value of chat_template in tokenizer_config.json, a string or a list; empty if it has none
  std::map<std::string, std::string> tokens;  // tokenizer_config.json: text by "bos_token", "eos_token", ...
  // eos_token_id of config.json, then those of generation_config.json that are not among them.
  std::vector<uint32_t> eos_ids;
  std::optional<uint32_t> bos_id, pad_id;  // generation_config.json's, else config.json's

  // Takes from `other` what is missing here.
  void fill_from(const TokenizerSideFiles& other);
};

// Reads the side files in a folder, any of which may be missing. Throws a kData error that names the file
// if one is not a JSON object or an id in it is not a token id.
TokenizerSideFiles read_side_files(const std::filesystem::path& folder);

// Writes chat_template.jinja, tokenizer_config.json and generation_config.json into a folder that has no
// config.json. Files without content are not written.
void write_side_files(const TokenizerSideFiles& side, const std::filesystem::path& folder);

inline constexpr const char* kChatTemplateFile = "chat_template.jinja";
inline constexpr const char* kChatTemplateKey = "chat_template";
inline constexpr const char* kGenerationConfigName = "generation_config.json";

}  // namespace ingot
