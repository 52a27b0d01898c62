// Scorer computes the log-likelihoods of tokens with a cache of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ingot/nn/transformer.h"
#include "ingot/tasks/task_tokens.h"

namespace ingot {

struct ScorerShape {
  int64_t slots = 1;      // records at the same time
  int64_t positions = 1;  // the most tokens of a request without its last one
};

class Scorer {
 public:
  // Borrows the first four arguments and allocates memory on the stream's device. REQUIRES: on a CUDA device
  // bring_to_device was called and the weights are there.
  Scorer(const Transformer& model, ParamStore& params, Region& region, Stream& stream,
         const ScorerShape& shape);

  struct Bytes {
    size_t host = 0, device = 0;  // all of it is host memory on the CPU
  };
  static Bytes planned_bytes(const Transformer& model, const ScorerShape& shape, Device device);

  // Receives the tokens of the requests that are done, and of all; a request's last token is not counted.
  using Progress = std::function<void(int64_t tokens, int64_t all)>;
  // Returns the scores of the requests, in order. The requests of one record take one slot of the cache one
  // after the other, and each of them computes only the tokens behind its common beginning with what lies in
  // the slot. A call of the model has rows of several slots, without padding on the CPU. kNumerics error if a
  // score is not finite.
  std::vector<Score> run(std::span<const ScoreRequest> requests, const Progress& progress = {});

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
  struct Buffers {
    Tensor ids;     // (4, rows) i32
    Tensor logits;  // (rows, Vp) f32
  };
  struct Arenas {
    Arena caches, scratch, host, there;  // there: copies of the host's buffers on a device; empty on the CPU
  };
  static Arenas plan(const Transformer& model, const ScorerShape& shape, Device device);
  static Buffers lay_out(Arena& arena, const Transformer& model, const ScorerShape& shape, Device device);
  static size_t scratch_bytes(const Transformer& model, const ScorerShape& shape, Device device);

  // Drops from the slot what the next request does not begin with, and the last token before the scored ones.
  static void prepare(Slot& slot, const ScoreRequest& request);
  // Computes as many tokens of all slots' requests as go into a call, and adds their scores.
  void advance(std::span<const ScoreRequest> requests, std::vector<Score>& scores);
  void infer(const InferBatch& batch);
  void score(int64_t index, Row& row) const;

  const Transformer& model_;
  ParamStore& params_;
  Region& region_;
  Stream& stream_;
  ScorerShape shape_;
  Arenas arenas_;
  std::vector<KvCache> caches_;
  Buffers host_, there_;  // there_: on a device
  std::vector<Slot> slots_;
};

}  // namespace ingot
