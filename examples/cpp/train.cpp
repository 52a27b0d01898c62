// Trains a small LLaMA on a text, continues a prompt and saves the model: build/train TEXT [STEPS [FOLDER]]
#include <cstdio>
#include <exception>
#include <string>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/run_plan.h"
#include "ingot/infer/generate.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/data/run_data.h"
#include "ingot/train/trainer.h"

using namespace ingot;

int main(int argc, char** argv) try {
  if (argc < 2) throw Error("usage: train TEXT [STEPS [FOLDER]]", ErrorKind::kUsage);

  // The same keys as in `ingot train --set`; config_reference() lists them.
  ConfigBuilder builder;
  builder.add_source("tiny-llama");
  builder.add_texts("data.train", {argv[1]}, "TEXT");
  builder.add_override("data.tokenizer=byte");
  builder.add_override("train.steps=" + std::string(argc > 2 ? argv[2] : "200"));
  RunConfig config = builder.build();

  const RunData data = load_run_data(config.data, std::nullopt);
  config.model.vocab = data.tokenizer->vocab_size();
  Trainer trainer(config, parallelize(config));  // all memory is allocated here
  trainer.initialise();

  const Sampler sampler(config.data.order, config.train.seed, data.train.tokens(), config.model.context);
  Loader loader(data.train, sampler, {.shape = trainer.layout().batch_shape});
  const RunPlan plan(config);  // learning rate and momentum of every step
  for (int64_t step = 0; step < config.train.steps; ++step) {
    const int64_t tokens = loader.position() * config.model.context;
    const StepResult result = trainer.step(loader, plan.inputs(plan.position(step, tokens, 0)));
    if (step % 20 == 0)
      std::printf("step %4lld  loss %.4f  |gradient| %.3f\n", static_cast<long long>(step), result.loss,
                  result.grad_norm);
  }

  std::printf("validation loss %.4f\n", trainer.evaluate(data.val, 0).loss);
  Layout& layout = trainer.layout();
  Generator generator(*layout.model, trainer.params(), *layout.region, *layout.stream);
  generate_text(generator, *data.tokenizer, "The ", 120, SampleConfig{}, /*seed=*/1,
                [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); });
  std::printf("\n");

  if (argc > 3) {
    CheckpointStore store(argv[3]);
    const TrainerState state{.step = config.train.steps,
                             .tokens = loader.position() * config.model.context,
                             .sample_position = loader.position(),
                             .data_hash = data.train.content_hash()};
    const auto saved =
        save_checkpoint(&store, trainer, *data.tokenizer, config_toml(config, ConfigDocs::kNone), state);
    std::printf("saved: %s\n", saved.c_str());
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return exit_code(error.kind());
}
