#include "ingot/checkpoint/hf_texts.h"

namespace ingot {

std::map<std::string, std::string> hf_text_files(const HfModelConfig& config, const Tokenizer& tokenizer) {
  const TokenizerSideFiles& side = tokenizer.side_files();
  HfTokenizerConfig tokens{
      .tokens = side.tokens, .context = config.context, .chat_template_json = side.chat_json};
  if (std::string& eos = tokens.tokens["eos_token"]; eos.empty() && tokenizer.end_of_text())
    tokenizer.append_bytes(*tokenizer.end_of_text(), eos);
  std::map<std::string, std::string> files = {{"config.json", hf_config_text(config)},
                                              {kGenerationConfigName, hf_generation_config_text(config)},
                                              {"tokenizer.json", tokenizer.to_json()},
                                              {"tokenizer_config.json", hf_tokenizer_config_text(tokens)}};
  if (!side.chat_jinja.empty()) files[kChatTemplateFile] = side.chat_jinja;
  return files;
}

}  // namespace ingot
