// Distributed data parallelism (Li et al. 2020, arXiv:2006.15704): every rank holds the whole model and
// trains on different data. Gradients are summed over the ranks, bucket by bucket, while backward runs.
//
// DdpStore implements the interface TrainingStore (nn/param_store.h). A bucket is a range of the flat
// gradient memory that covers neighbouring units. Its all_reduce starts when the last of its units is
// ready in the last micro-batch of a step, so gradient accumulation reduces once; finish_gradients waits
// for it. Gradients are summed and not averaged, because the loss is scaled by the global number of
// tokens. Initial weights depend on the seed only, so nothing is sent before the first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"
#include "ingot/parallel/gradient_payload.h"

namespace ingot {

struct DdpConfig {
  int64_t bucket_bytes = int64_t{25} << 20;  // of f32 gradients; a single unit may exceed it
  GradientPayload payload = {};
  // Throws a kUsage error that names the key.
  void validate() const;
};

class DdpStore : public TrainingStore {
 public:
  // Borrows store, group and stream. The ranks of `group` hold the same parameters. REQUIRES: store has
  // gradients, and group carries tensors of the stream's device.
  DdpStore(ResidentStore& store, Communicator& group, const DdpConfig& config, Stream& stream);

  ~DdpStore() override;  // waits for collectives in flight

  const UnitBuffers& get(int unit) override { return store_.get(unit); }
  const UnitBuffers& buffers(int unit) override { return store_.buffers(unit); }
  void prefetch(int unit) override { store_.prefetch(unit); }
  void release(int unit) override { store_.release(unit); }
  void grad_ready(int unit) override;
  OldGradients open_gradients(int unit) override { return store_.open_gradients(unit); }

  void begin_step() override { store_.begin_step(); }
  void begin_micro(bool is_last) override;
  void join() override;
  void replayed(const StoreState& after) override;
  const StoreState& state() const override { return store_.state(); }
  // After this call, every gradient is the sum over the ranks. Throws an Error if a unit was never ready.
  void finish_gradients() override;
  std::vector<ParamShard> shards() override { return store_.shards(); }
  void refresh_compute(Stream& stream) override { store_.refresh_compute(stream); }
  void expand_masters(Stream& stream) override { store_.expand_masters(stream); }
  Replicas replicas(int /*id*/) const override { return {group_.size(), group_.rank()}; }
  Replicas shard_group(int id) const override { return replicas(id); }

  struct Bucket {
    int first_unit = 0, last_unit = 0;
    int units = 0;    // units that are on this rank
    Tensor grad;      // (n) f32, aliases the units' memory
    Tensor payload;   // (n) bf16 or f16; empty if the payload is f32
    Tensor residual;  // (n) f32; empty without error feedback
    std::string name = {};
    bool is_under_way = false;  // its all_reduce was started, and nothing has waited for it
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Seconds that finish_gradients waited in the last step, i.e. communication that was not overlapped.
  double exposed_s() const { return exposed_s_; }
  size_t extra_bytes() const { return arena_.capacity_bytes(); }

 private:
  void make_buckets(const DdpConfig& config);
  void start(size_t bucket);

  ResidentStore& store_;
  Communicator& group_;
  Stream& stream_;
  Arena arena_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // per unit
  std::vector<int> missing_;       // units of each bucket that are not ready yet
  std::vector<Pending> pending_;   // per bucket
  bool is_last_micro_ = true, is_replayed_ = false;
  double exposed_s_ = 0;
};

}  // namespace ingot
