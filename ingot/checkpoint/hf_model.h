// Converts between Ingot's models and the architectures of Hugging Face transformers.
#pragma once

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/hf_config.h"
#include "ingot/nn/config.h"

namespace ingot {

// Returns the family of transformers (model_type) that computes a resolved model; "ingot" if there is none.
const char* hf_family(const ModelConfig& config);

// Returns the model as a Hugging Face config of the family hf_family().
HfModelConfig to_hf_config(const ModelConfig& config, const Tokenizer& tokenizer);
// Returns the model of such a config. Throws a kData error that names the key if Ingot does not compute it.
ModelConfig from_hf_config(const HfModelConfig& config);

}  // namespace ingot
