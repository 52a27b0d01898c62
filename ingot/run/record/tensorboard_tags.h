// Maps the fields of metrics.jsonl to TensorBoard tags. TensorBoard groups charts by the text before the
// first slash: train, val, time, memory, params.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/formats/tensorboard.h"

namespace ingot {

// "loss" -> train/loss, "val_loss" -> val/loss, "ms_forward" -> time/forward_ms, "bytes_gradients" ->
// memory/gradients_bytes; "task/..." stays. Characters that TensorBoard does not accept become underscores.
std::string tensorboard_tag(std::string_view field);
// "grad_norm" of "head.weight" -> params/grad_norm/head.weight
std::string tensorboard_param_tag(std::string_view field, std::string_view param);

// Every key of the configuration with its value: numbers, flags and texts.
std::vector<HyperParameter> hyper_parameters(const RunConfig& config);

// Returns Markdown that shows the text unchanged, line by line.
std::string verbatim_markdown(std::string_view text);

}  // namespace ingot
