// Samples that a run draws from its model during training.
#pragma once

#include <cstdint>
#include <string>

#include "ingot/config/config.h"
#include "ingot/console/console.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/train/trainer.h"

namespace ingot {

// Draws options.count samples, cycling through the prompts, and streams them to the console. Sample i uses
// seed + i, so equal weights give equal samples. Returns their text, each after a line "--- NUMBER".
std::string run_samples(const SamplesConfig& options, Trainer& trainer, const Tokenizer& tokenizer,
                        uint64_t seed, Console& console);

}  // namespace ingot
