#include "ingot/run/run_samples.h"

#include <fmt/core.h>

#include <memory>

#include "ingot/core/copy.h"
#include "ingot/train/generate.h"

namespace ingot {
namespace {

// Copies this rank's weights from a device to the host, because text is generated on the CPU. Returns null if they are on
// the host.
std::unique_ptr<ResidentStore> host_weights(Trainer& trainer) {
  Stream& stream = *trainer.layout().stream;
  if (stream.device == Device::kCpu) return nullptr;
  const Layout& layout = trainer.layout();
  auto host = std::make_unique<ResidentStore>(layout.stage_list ? *layout.stage_list : layout.model->params(),
                                              layout.model->compute(), false);
  for (int id = 0; id < static_cast<int>(host->list().specs().size()); ++id)
    if (host->list()[id].elements() > 0) copy(host->weight(id), trainer.params().weight(id), stream);
  synchronize(stream);
  return host;
}

}  // namespace

std::string run_samples(const SamplesConfig& options, Trainer& trainer, const Tokenizer& tokenizer,
                        uint64_t seed, Console& console) {
  const std::unique_ptr<ResidentStore> host = host_weights(trainer);
  Generator generator(
      *trainer.layout().model, host ? static_cast<ParamStore&>(*host) : trainer.params(),
      *trainer.layout().region,
      [&](LayerContext& ctx, const Tensor& tokens, std::vector<KvCache>& caches, const Tensor& logits) {
        trainer.layout().executor->infer(ctx, tokens, caches, logits);
      });
  std::string all;
  for (int64_t i = 0; i < options.count; ++i) {
    const std::string prompt =
        options.prompts.empty() ? "" : options.prompts[static_cast<size_t>(i) % options.prompts.size()];
    console.line(
        fmt::format("--- sample {} of {}, step {}", i + 1, options.count, trainer.state().steps_done));
    std::string text;
    generate_text(generator, tokenizer, prompt, options.tokens,
                  {.temperature = static_cast<float>(options.temperature),
                   .top_k = options.top_k,
                   .top_p = static_cast<float>(options.top_p)},
                  seed + static_cast<uint64_t>(i), [&](std::string_view shard) {
                    console.stream(shard);
                    text += shard;
                  });
    all += fmt::format("--- {}\n{}\n", i + 1, text);
  }
  console.line("---");
  return all;
}

}  // namespace ingot
