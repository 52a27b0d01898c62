#include "ingot/run/run_samples.h"

#include <fmt/core.h>

#include <utility>

#include "ingot/infer/generate.h"
#include "ingot/infer/texts_in_order.h"

namespace ingot {

std::string run_samples(const RunConfig& config, Trainer& trainer, const Tokenizer& tokenizer,
                        Console& console) {
  const SamplesConfig& options = config.sample;
  Layout& layout = trainer.layout();
  Transformer::Infer infer;  // With it, the generator takes no CUDA graphs.
  if (trainer.params().is_sharded() || !config.train.has_graph) infer = layout.executor->bound_infer();
  Generator generator(*layout.model, trainer.params(), *layout.region, *layout.stream,
                      {.slots = options.slots()}, std::move(infer));
  TextRequest request{.prompts = {},
                      .tokens = options.tokens,
                      .sample = {.temperature = static_cast<float>(options.temperature),
                                 .top_k = options.top_k,
                                 .top_p = static_cast<float>(options.top_p)},
                      .seed = config.train.seed};
  const auto count = static_cast<size_t>(options.count);
  for (size_t i = 0; i < count; ++i)
    request.prompts.push_back(options.prompts.empty() ? "" : options.prompts[i % options.prompts.size()]);
  std::string all, text;
  const auto begin = [&](size_t i) {
    console.line(fmt::format("--- sample {} of {}, step {}", i + 1, count, trainer.state().steps_done));
  };
  TextsInOrder in_order(count, [&](size_t i, std::string_view piece, bool is_last) {
    console.stream(piece);
    text += piece;
    if (!is_last) return;
    all += fmt::format("--- {}\n{}\n", i + 1, text);
    text.clear();
    if (i + 1 < count) begin(i + 1);
  });
  if (count > 0) begin(0);
  generate_texts(generator, tokenizer, request,
                 [&](size_t i, std::string_view piece, bool is_last) { in_order.add(i, piece, is_last); });
  console.line("---");
  return all;
}

}  // namespace ingot
