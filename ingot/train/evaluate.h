// The loss of a model on a stream of tokens.
#pragma once

#include <cstdint>
#include <functional>

#include "ingot/config/data_shard.h"
#include "ingot/data/loader.h"
#include "ingot/nn/transformer.h"
#include "ingot/train/device_feed.h"
#include "ingot/train/reduce.h"
#include "ingot/train/stages.h"

namespace ingot {

struct EvalResult {
  double loss = 0;  // mean, nats per token
  double top1 = 0;
  int64_t tokens = 0;        // predicted
  int64_t text_tokens = 0;   // that the whole text has to predict
  double bits_per_byte = 0;  // of the text the tokens stand for; 0 where its size is not known
  bool is_complete = true;   // false: goes_on ended the walk, and the numbers are of what came before
};

// Called after every batch with the tokens walked so far and those of the whole walk; false ends the walk.
// All ranks call it alike and must get the same answer.
using EvalProgress = std::function<bool(int64_t tokens, int64_t all_tokens)>;

struct EvalWalk {
  int64_t max_tokens = 0;  // > 0: stops after about so many, a whole number of global batches
  bool has_document_mask = false;
  DataShare share = {};  // batch_size rows at a time on each rank
  EvalProgress goes_on = {};
};

// Walks the text in consecutive windows of T tokens; every token but the first is predicted once. ctx:
// without dropout; feed: of its stream's device; saved: of (share.batch_size, T), whose contents are lost.
// Called by all ranks of `data`, each of which takes its share of the windows. stages: where the model lies
// in such (saved is not used).
EvalResult evaluate(const Transformer& model, LayerContext& ctx, DeviceFeed& feed, Transformer::Saved& saved,
                    const TokenSource& text, const EvalWalk& walk, Reducer& data, Stages* stages = nullptr);

}  // namespace ingot
