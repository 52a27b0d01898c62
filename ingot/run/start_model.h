// Reads the model that a run starts from (train.init_from), a folder of Hugging Face or of Ingot.
#pragma once

#include <filesystem>
#include <optional>

#include "ingot/config/config_toml.h"

namespace ingot {

// Completes a configuration whose train.init_from names a folder, before ConfigBuilder::build(). The model is
// taken from the folder, and so is the tokenizer unless data.tokenizer is set. The model's keys are set to
// the folder's values, even where a preset sets them, except keys that do not shape the model (model.dropout,
// model.vocab_multiple, model.init_std ...). Throws a kUsage error that names a key of the user that
// contradicts the folder; the user may only shorten model.context of a model with rotary positions. Throws a
// kData error if the folder has no such model. Does nothing if train.init_from is empty.
//
// resumed_config: config.toml of the run that is resumed. If given, the model and the tokenizer are taken
// from it, and the folder is not read.
void complete_from_start(ConfigBuilder& builder,
                         const std::optional<std::filesystem::path>& resumed_config = std::nullopt);

}  // namespace ingot
