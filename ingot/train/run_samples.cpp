#include "ingot/train/run_samples.h"

#include <fmt/format.h>

#include "ingot/train/generate.h"

namespace ingot {

std::string run_samples(const SamplesConfig& options, Trainer& trainer, const Tokenizer& tokenizer,
                        uint64_t seed, Console& console) {
  Generator generator(trainer.model(), trainer.params(), trainer.region());
  std::string all;
  for (int64_t i = 0; i < options.count; ++i) {
    const std::string prompt =
        options.prompts.empty() ? "" : options.prompts[static_cast<size_t>(i) % options.prompts.size()];
    console.line(fmt::format("--- sample {} of {}, step {}", i + 1, options.count, trainer.steps_done()));
    std::string text;
    generate_text(generator, tokenizer, prompt, options.tokens,
                  {.temperature = static_cast<float>(options.temperature),
                   .top_k = options.top_k,
                   .top_p = static_cast<float>(options.top_p)},
                  seed + static_cast<uint64_t>(i), [&](std::string_view piece) {
                    console.stream(piece);
                    text += piece;
                  });
    all += fmt::format("--- {}\n{}\n", i + 1, text);
  }
  console.line("---");
  return all;
}

}  // namespace ingot
