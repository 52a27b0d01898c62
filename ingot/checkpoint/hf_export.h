// Writes a model as a folder for Hugging Face transformers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ingot/checkpoint/checkpoint.h"

namespace ingot {

struct HfExportOptions {
  DType dtype = DType::f32;  // the weights are written in f32, bf16 or f16
  uint64_t file_bytes =
      5'000'000'000;  // a file gets no further tensor beyond this; larger models have several files
  LoadedWeights weights = LoadedWeights::kTrained;
  int64_t mean_of = 1;  // above 1: the mean of so many checkpoints (load_mean_model)
};

struct HfExport {
  std::string model_type;  // if "ingot", the folder has modeling_ingot.py
  size_t tensors = 0, files = 0;
  uint64_t bytes = 0;  // size of the weights
};

// Writes the model of `from` (as for load_model or load_mean_model) to a new folder: config.json,
// generation_config.json, the tokenizer, and the weights as one safetensors file or several with an index. A
// model that no class of transformers computes gets modeling_ingot.py, for trust_remote_code. The folder
// appears only when it is complete. Throws a kUsage error if it exists and is not empty, a kNumerics error if
// a weight does not fit into the dtype, and a kDisk error if writing fails.
HfExport export_hf(const std::filesystem::path& from, const std::filesystem::path& folder,
                   const HfExportOptions& options, const DamageReport& report);

}  // namespace ingot
