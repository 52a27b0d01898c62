// Prompts of different lengths for the model of small_training.h, and what a trainer's model makes of them.
#pragma once

#include <span>
#include <vector>

#include "ingot/infer/generate.h"
#include "ingot/train/trainer.h"

namespace ingot::test {

inline std::vector<Generator::Prompt> five_prompts() {
  std::vector<Generator::Prompt> prompts{
      {{5, 28, 21}, 1}, {{7}, 2}, {{}, 3}, {{60, 59, 1, 0, 30, 31}, 4}, {{9, 48}, 5}};
  for (TokenId i = 0; i < 45; ++i) prompts[2].tokens.push_back(i * 7 % 61);
  return prompts;
}

// Returns `tokens` tokens for each prompt, made with `slots` sequences at the same time.
inline std::vector<std::vector<TokenId>> sampled(Trainer& trainer, std::span<const Generator::Prompt> prompts,
                                                 int64_t tokens, int64_t slots, const SampleConfig& config) {
  Layout& layout = trainer.layout();
  Generator generator(*layout.model, trainer.params(), *layout.region, *layout.stream, {.slots = slots},
                      layout.executor->bound_infer());
  generator.limit_ids(61);
  std::vector<std::vector<TokenId>> all(prompts.size());
  generator.run(prompts, tokens, config, {}, [&](size_t prompt, TokenId id) {
    all[prompt].push_back(id);
    return true;
  });
  return all;
}

}  // namespace ingot::test
