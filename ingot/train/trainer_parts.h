// TrainerParts: what a trainer is put together from where several ranks train one model. The defaults are
// those of one rank alone; `parallel` has the others.
#pragma once

#include <memory>

#include "ingot/config/config.h"
#include "ingot/config/data_shard.h"
#include "ingot/core/time_limit.h"
#include "ingot/nn/param_store.h"
#include "ingot/nn/region.h"
#include "ingot/nn/tensor_share.h"
#include "ingot/optim/shared_update.h"
#include "ingot/train/reduce.h"
#include "ingot/train/stages.h"

namespace ingot {

struct Reducers {
  Reducer& all;      // every rank of the run: flags, texts, the clock
  Reducer& data;     // the ranks that see different samples: losses and counts
  Reducer& weights;  // the ranks that hold different pieces of the weights: squared norms
};

class TrainerParts {
 public:
  virtual ~TrainerParts() = default;

  // Called once, before anything else of the weights; it lives as long as the parts. stream: outlives it.
  virtual TrainingStore& make_store(const ParamList& list, const RunConfig& config, Stream& stream);
  // With whom updates are made; none: alone. Called once, after make_store; lives as long as the parts.
  virtual SharedUpdate* shared_update([[maybe_unused]] const RunConfig& config) { return nullptr; }
  virtual Reducers reducers() { return {alone_, alone_, alone_}; }
  virtual Region& region() { return region_; }
  // This rank's share of every product. kUsage error for a config whose products cannot be shared.
  virtual TensorShare tensor_share([[maybe_unused]] const RunConfig& config) { return {}; }
  virtual DataShare share(const TrainConfig& config) { return DataShare::of(config, 1, 0); }
  // Called once, after make_store; it lives as long as the parts. Null: the whole model is here.
  virtual Stages* make_stages([[maybe_unused]] const Transformer& model,
                              [[maybe_unused]] const RunConfig& config) {
    return nullptr;
  }
  // For how long ranks wait for each other; the session says what they are at.
  virtual TimeLimit& time_limit() { return time_limit_; }
  // The same parts for a plan of memory (memory/memory_plan.h): their arenas have addresses alone, and what
  // they do with other ranks stays here.
  virtual std::unique_ptr<TrainerParts> planned() const { return std::make_unique<TrainerParts>(); }

 private:
  std::unique_ptr<ResidentStore> store_;
  Reducer alone_;
  Region region_;
  TimeLimit time_limit_;
};

}  // namespace ingot
