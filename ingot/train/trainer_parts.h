// TrainerParts is the parallel implementation of the trainer's interfaces. The defaults are for a single
// rank; the folder parallel/ implements the others.
#pragma once

#include <memory>

#include "ingot/config/config.h"
#include "ingot/config/data_shard.h"
#include "ingot/core/time_limit.h"
#include "ingot/nn/param_store.h"
#include "ingot/nn/region.h"
#include "ingot/nn/tensor_parallel.h"
#include "ingot/optim/update_comm.h"
#include "ingot/train/reduce.h"
#include "ingot/train/stages.h"

namespace ingot {

struct Reducers {
  Reducer& all;      // every rank of the run: flags, texts, the clock
  Reducer& data;     // the ranks that see different samples: losses and counts
  Reducer& weights;  // the ranks that hold different shards of the weights: squared norms
};

class TrainerParts {
 public:
  virtual ~TrainerParts() = default;

  // Called once, before any other function that concerns the weights. The store lives as long as this
  // object; `stream` must outlive it.
  virtual TrainingStore& make_store(const ParamList& list, const RunConfig& config, Stream& stream);
  // Communication used by updates; null on a single rank. Called once, after make_store; lives as long as
  // this object.
  virtual UpdateComm* update_comm([[maybe_unused]] const RunConfig& config) { return nullptr; }
  virtual Reducers reducers() { return {alone_, alone_, alone_}; }
  virtual Region& region() { return region_; }
  // This rank's shard of every matrix product. kUsage error for a config whose products cannot be
  // sharded.
  virtual TensorParallel tensor_parallel([[maybe_unused]] const RunConfig& config) { return {}; }
  virtual DataShard data_shard(const TrainConfig& config) { return DataShard::of(config, 1, 0); }
  // The pipeline; null if this rank holds the whole model. Called once, after make_store; lives as long
  // as this object.
  virtual Stages* make_stages([[maybe_unused]] const Transformer& model,
                              [[maybe_unused]] const RunConfig& config) {
    return nullptr;
  }
  // How long ranks wait for each other; the session sets what they are doing.
  virtual TimeLimit& time_limit() { return time_limit_; }
  // The same parts for a memory plan (memory/memory_plan.h): their arenas have addresses but no memory,
  // and they do not communicate with other ranks.
  virtual std::unique_ptr<TrainerParts> planned() const { return std::make_unique<TrainerParts>(); }

 private:
  std::unique_ptr<ResidentStore> store_;
  Reducer alone_;
  Region region_;
  TimeLimit time_limit_;
};

}  // namespace ingot
