// Writes a model as a GGUF file for llama.cpp.
#pragma once

#include <filesystem>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/formats/gguf.h"

namespace ingot {

// Writes the matrices and the embedding in `type`, but matrices whose rows are no whole q8_0 blocks in f16
// instead of q8_0, and vectors and positions in f32. GPT-2 becomes llama.cpp's gpt2, LLaMA its llama (whose
// RoPE rotates neighbouring pairs, so the rows of q and k are permuted), and LLaMA with QK-norm its qwen3
// (with gains of 1). Norms without weights become gains of 1. Returns notes for the user on what llama.cpp
// does differently. Throws a kData error with the reason for a model or tokenizer that llama.cpp cannot
// compute, and a kDisk error if there is no room.
std::vector<std::string> export_gguf(const LoadedModel& loaded, GgufType type,
                                     const std::filesystem::path& path);

}  // namespace ingot
