// The samples that a run draws from its model as it trains.
#pragma once

#include <cstdint>
#include <string>

#include "ingot/config/config.h"
#include "ingot/console/console.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/train/trainer.h"

namespace ingot {

// options.count samples, the prompts in turn, streamed to the console. Sample i is drawn with seed + i:
// equal weights give equal samples. Returns their text, each under a line "--- NUMBER".
std::string run_samples(const SamplesConfig& options, Trainer& trainer, const Tokenizer& tokenizer,
                        uint64_t seed, Console& console);

}  // namespace ingot
