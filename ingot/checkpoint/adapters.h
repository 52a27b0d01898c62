// Writes the config of adapters (lora.rank), and merges adapters into weights. A checkpoint of a run that
// trains adapters holds them in PEFT's format, adapter_model.safetensors with adapter_config.json, and refers
// to the folder of the frozen model by its path.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ingot/checkpoint/hf_weights.h"

namespace ingot {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";

// Returns adapter_config.json of a model with adapters. base: the folder of the frozen model.
std::string adapter_config_text(const Transformer& model, const std::string& base);

// Adds (alpha / rank) b · a of every adapter to the weights of a store, in f32 before they are rounded.
// adapted: the model with adapters. values(id): the f32 values of its parameter `id`, an adapter's, in the
// parameter's shape. model: the same model without adapters. base: the files of its weights, from which
// `store` was read.
void merge_adapters(const Transformer& adapted, const std::function<Tensor(int id)>& values,
                    const SafetensorsSet& base, const Transformer& model, ParamStore& store);

}  // namespace ingot
