// Distributed data parallelism (Li et al. 2020, arXiv:2006.15704): every rank holds everything and sees other
// data; gradients are added over the ranks, bucket by bucket, while backward goes on.
//
// Fills the seam TrainingStore (nn/param_store.h). A bucket is a range of the flat gradient memory, of
// neighbouring units; its all_reduce starts when the last of its units is ready in the last micro-batch of a
// step (accumulation reduces once), and is waited for in finish_gradients. Sums, not means: the loss is
// scaled by the global number of tokens. Initial weights are a function of the seed: nothing is sent before
// the first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"

namespace ingot {

struct DdpConfig {
  int64_t bucket_bytes = int64_t{25} << 20;  // of f32 gradients; a unit alone may be more
  // bf16, f16: gradients travel rounded to that (half the bytes; still added in f32). f32: as they are. f16
  // has three bits more, and none for what is below 6e-8 or above 65504, which becomes infinite and is
  // reported.
  DType payload = DType::f32;
  DType payload_ends = DType::f32;  // of the units of embedding and head, whose rows few tokens see
  // What rounding took from a gradient is added to it in the next step (Seide et al. 2014). 4 bytes per
  // parameter.
  bool has_error_feedback = false;
  // Throws a kUsage error naming the key.
  void validate() const;
};

class DdpStore : public TrainingStore {
 public:
  // Borrows all three. The ranks of `group` hold the same parameters. REQUIRES: store has gradients; group
  // carries tensors of the stream's device.
  DdpStore(ResidentStore& store, Communicator& group, const DdpConfig& config, Stream& stream);

  ~DdpStore() override;  // waits for what is under way

  const UnitBuffers& get(int unit) override { return store_.get(unit); }
  void prefetch(int unit) override { store_.prefetch(unit); }
  void release(int unit) override { store_.release(unit); }
  void grad_ready(int unit) override;

  void begin_micro(bool is_last) override { is_last_micro_ = is_last; }
  // Every gradient is the sum over the ranks. Error if a unit was never ready.
  void finish_gradients() override;
  std::vector<ParamPiece> pieces() override { return store_.pieces(); }
  void refresh_compute(Stream& stream) override { store_.refresh_compute(stream); }
  void expand_masters(Stream& stream) override { store_.expand_masters(stream); }
  Holders copies(int /*id*/) const override { return {group_.size(), group_.rank()}; }
  Holders sharers(int id) const override { return copies(id); }

  struct Bucket {
    int first_unit = 0, last_unit = 0;
    int units = 0;    // that are here
    Tensor grad;      // (n) f32, in the units' memory
    Tensor payload;   // (n) bf16 or f16, or absent
    Tensor residual;  // (n) f32, or absent
    std::string name = {};
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Time that finish_gradients waited in the last step: communication that nothing hid.
  double exposed_s() const { return exposed_s_; }
  size_t extra_bytes() const { return arena_.capacity_bytes(); }

 private:
  DType payload_of(int unit, const DdpConfig& config) const;
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
  bool is_last_micro_ = true;
  double exposed_s_ = 0;
};

}  // namespace ingot
