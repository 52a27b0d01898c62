// The model that a run starts from (train.init_from): a folder of Hugging Face, or a checkpoint of Ingot.
#pragma once

#include <filesystem>
#include <optional>

#include "ingot/config/config_toml.h"

namespace ingot {

// Completes a configuration whose train.init_from names a folder, before ConfigBuilder::build(): the model is that of
// the folder, and so is the tokenizer unless data.tokenizer is set. Presets and defaults of the model's keys give way,
// except those that do not shape it (model.dropout, model.vocab_multiple, model.init_std ...). The user may shorten
// model.context of a model with rotary positions; a kUsage error names any other key that contradicts the folder.
// kData error if the folder has no such model. Does nothing if train.init_from is empty.
//
// resumed_config: config.toml of the run that is resumed. The model and the tokenizer are then taken from it, and the
// folder is not read.
void complete_from_start(ConfigBuilder& builder,
                         const std::optional<std::filesystem::path>& resumed_config = std::nullopt);

}  // namespace ingot
