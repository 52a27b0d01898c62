// Samples that a run draws from its model during training.
#pragma once

#include <string>

#include "ingot/config/config.h"
#include "ingot/console/console.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/train/trainer.h"

namespace ingot {

// Draws config.sample.count samples, cycling through the prompts, and streams them to the console. Sample i
// uses train.seed + i, so equal weights give equal samples. Returns their text, each after a line "---
// NUMBER".
std::string run_samples(const RunConfig& config, Trainer& trainer, const Tokenizer& tokenizer,
                        Console& console);

}  // namespace ingot
