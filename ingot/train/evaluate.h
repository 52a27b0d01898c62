// evaluate() computes the loss of a model on a stream of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/config/data_shard.h"
#include "ingot/data/loader.h"
#include "ingot/nn/transformer.h"
#include "ingot/train/executor.h"

namespace ingot {

struct EvalResult {
  double loss = 0;  // mean, nats per token
  double top1 = 0;
  int64_t tokens = 0;        // predicted tokens
  int64_t text_tokens = 0;   // predicted tokens of the whole text
  double bits_per_byte = 0;  // bits per byte of the predicted tokens; 0 if their bytes are unknown
  bool is_complete =
      true;  // false if should_continue ended the walk; the results then cover the tokens before that
};

// Called after every batch with the number of tokens processed so far and the total for the walk.
// Returning false ends the walk. Every rank calls it, and it must return the same value on all of them.
using EvalProgress = std::function<bool(int64_t tokens, int64_t all_tokens)>;

struct EvalWalk {
  int64_t max_tokens = 0;     // if > 0, stops after about this many (rounded up to whole global batches)
  BatchShape shape = {};      // Every batch of this rank has this shape.
  DataShard data_shard = {};  // each rank takes batch_size rows at a time
  EvalProgress should_continue = {};
};

// Walks the text in consecutive windows of T tokens and predicts every token except the first once. All
// ranks of `data` call this, and each evaluates its shard of the windows. REQUIRES: ctx has no dropout.
EvalResult evaluate(Executor& executor, LayerContext& ctx, const TokenSource& text, const EvalWalk& walk,
                    Communicator& data);

// Returns the log-probability of each document's targets, in nats. All ranks of `data` call it. REQUIRES: as
// evaluate(); the text has documents with positions, and this rank the head.
std::vector<double> score_documents(Executor& executor, LayerContext& ctx, const TokenSource& text,
                                    const EvalWalk& walk, Communicator& data);

}  // namespace ingot
