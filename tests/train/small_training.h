// SmallTraining is a trainer on a stream that a small model learns in a few steps.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingot/parallel/parallelize.h"
#include "ingot/train/trainer.h"
#include "tests/config/built_config.h"
#include "tests/data/all_tokens.h"
#include "tests/reference/error_of.h"
#include "tests/train/gradients.h"
#include "tests/train/old_gradients.h"

namespace ingot {

// Returns a learnable stream of 61 different tokens, each of which follows from the one before. Its documents
// have 300 tokens each in the first half, and 90 later.
inline TokenSource chain() {
  std::vector<uint16_t> tokens(4000);
  for (size_t i = 1; i < tokens.size(); ++i)
    tokens[i] = static_cast<uint16_t>((tokens[i - 1] * 5 + 3 + (i % 17 == 0)) % 61);
  TokenSource source = source_of(std::move(tokens));
  DocumentStarts documents;
  for (int64_t i = 0; i < 4000; i += i < 2000 ? 300 : 90) documents.positions.push_back(i);
  source.set_documents(documents);
  return source;
}

// Returns the configuration of a model for chain(), with assignments as on the command line.
inline RunConfig small_config(const std::vector<std::string>& assignments) {
  return built_config("",
                      {"model.layers=1", "model.heads=2", "model.width=32", "model.context=32",
                       "model.vocab=61", "data.tokenizer=char", "train.batch_size=8"},
                      assignments);
}

inline RunConfig preset(const std::string& name) { return built_config(name, {}); }

// Returns a stream of ids below 251.
inline TokenSource squares() {
  std::vector<uint16_t> tokens(5000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>((i * i + 7 * i) % 251);
  return source_of(std::move(tokens));
}

struct SmallTraining {
  explicit SmallTraining(const RunConfig& config, TokenSource tokens = chain())
      : source(std::move(tokens)),
        trainer(config, parallelize(config)),
        sampler(SampleOrder::kRandom, 1, source.tokens(), config.model.context),
        loader(source, sampler,
               {.shape = trainer.layout().batch_shape, .readers = 1, .reader = 0, .prefetch = 1}) {
    trainer.initialise();
  }

  StepResult steps(int n) {
    StepResult last;
    for (int i = 0; i < n; ++i) {
      last = trainer.step(loader, {.lr = 3e-3});
      spoil_old_gradients(trainer);
    }
    return last;
  }

  TokenSource source;
  Trainer trainer;
  Sampler sampler;
  Loader loader;
};

// Returns the text of the kUsage error that the assignments cause, or "no error".
inline std::string refusal(const std::vector<std::string>& assignments) {
  return usage_error([&] { small_config(assignments); });
}

}  // namespace ingot
