// The text files of a model's folder for transformers.
#pragma once

#include <map>
#include <string>

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/hf_config.h"

namespace ingot {

// Returns the contents of config.json, generation_config.json, tokenizer.json, tokenizer_config.json and, if
// the tokenizer came with one, chat_template.jinja, by name.
std::map<std::string, std::string> hf_text_files(const HfModelConfig& config, const Tokenizer& tokenizer);

}  // namespace ingot
