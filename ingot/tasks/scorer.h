// Scorer computes the log-likelihoods of tokens with a cache of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ingot/infer/infer_engine.h"
#include "ingot/tasks/task_tokens.h"

namespace ingot {

class Scorer {
 public:
  // Borrows the first four arguments and allocates memory on the stream's device. infer: computes the logits;
  // by default the model does. With that of an Executor, all ranks get the same scores. REQUIRES: on a CUDA
  // device bring_to_device was called and the weights are there.
  Scorer(const Transformer& model, ParamStore& params, Region& region, Stream& stream,
         const InferShape& shape, Transformer::Infer infer = {})
      : engine_(model, params, region, stream, shape, std::move(infer)),
        slots_(static_cast<size_t>(shape.slots)) {}

  // Receives the tokens of the requests that are done, and of all; a request's last token is not counted.
  // Returns false to end the scoring.
  using Progress = std::function<bool(int64_t tokens, int64_t all)>;
  // Returns the scores of the requests, in order; nullopt if `progress` ended it. The requests of one record
  // take one slot of the cache one after the other, and each of them computes only the tokens behind its
  // common beginning with what lies in the slot. A call of the model has rows of several slots, without
  // padding on the CPU. kNumerics error if a score is not finite.
  std::optional<std::vector<Score>> run(std::span<const ScoreRequest> requests,
                                        const Progress& progress = {});

 private:
  struct Slot {
    std::vector<int32_t> held;  // the tokens whose keys and values lie in the slot
    size_t next = 0, end = 0;   // the request that is computed, and the end of its record's
  };
  // A token whose logits are computed.
  struct Row {
    size_t request = 0;
    int32_t target = 0;
    double log_likelihood = 0;
    bool is_greedy = false;
  };

  // Drops from the slot what the next request does not begin with, and the last token before the scored ones.
  static void prepare(Slot& slot, const ScoreRequest& request);
  // Computes as many tokens of all slots' requests as go into a call, and adds their scores.
  void advance(std::span<const ScoreRequest> requests, std::vector<Score>& scores);
  void score(int64_t index, Row& row) const;

  InferEngine engine_;
  std::vector<Slot> slots_;
};

}  // namespace ingot
