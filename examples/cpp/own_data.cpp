// A source of training data that no file holds: documents of eight random letters, a bar, and the same
// letters again. The letters after the bar can be predicted, the others cannot, so the best loss is known:
// build/own_data
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/config/run_plan.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/train/trainer.h"

using namespace ingot;

namespace {

constexpr uint16_t kBar = 26, kEnd = 27, kVocab = 28;
constexpr int kLetters = 8, kDocumentTokens = 2 * kLetters + 2;

// A TokenSource is any mixture of token vectors and mapped shards. A document begins at its end-of-text
// token.
TokenSource copied_letters(int documents, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> tokens;
  for (int document = 0; document < documents; ++document) {
    tokens.push_back(kEnd);
    for (int i = 0; i < kLetters; ++i) tokens.push_back(static_cast<uint16_t>(random() % 26));
    tokens.push_back(kBar);
    for (int i = 0; i < kLetters; ++i) tokens.push_back(tokens[tokens.size() - kLetters - 1]);
  }
  TokenSource source;
  source.add(std::move(tokens));
  source.set_documents({.end_of_text = kEnd, .positions = {}});
  return source;
}

}  // namespace

int main() try {
  const TokenSource train = copied_letters(20'000, 1), val = copied_letters(200, 2);

  ConfigBuilder builder;
  builder.add_source("tiny-llama");
  for (const char* key :
       {"model.layers=2", "model.vocab=28", "model.context=72", "train.steps=400", "train.batch_size=16",
        "train.grad_accum=1", "optimizer.lr=3e-3", "data.document_mask=true"})
    builder.add_override(key);
  const RunConfig config = builder.build();
  Trainer trainer(config, parallelize(config));
  trainer.initialise();
  const Sampler sampler(config.data.order, config.train.seed, train.tokens(), config.model.context);
  Loader loader(train, sampler, {.shape = trainer.layout().batch_shape});
  const RunPlan plan(config);
  for (int64_t step = 0; step < config.train.steps; ++step) {
    const int64_t tokens = loader.position() * config.model.context;
    const StepResult result = trainer.step(loader, plan.inputs(plan.position(step, tokens, 0)));
    if (step % 50 == 0) std::printf("step %4lld  loss %.4f\n", static_cast<long long>(step), result.loss);
  }

  const double best = kLetters * std::log(26.0) / kDocumentTokens;
  const double loss = trainer.evaluate(val, 0).loss;
  std::printf("validation loss %.4f; no model can be better than %.4f on average\n", loss, best);
  return loss < 1.15 * best ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "own_data: %s\n", error.what());
  return exit_code(error.kind());
}
