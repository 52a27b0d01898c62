// Data parallelism: sums gradients over the ranks that hold the same parameters, in buckets. A bucket is
// reduced as soon as the gradients of its last unit are complete in a step's last micro-batch, so
// communication overlaps with backward, and gradient accumulation reduces once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"
#include "ingot/parallel/gradient_payload.h"

namespace ingot {

struct DdpConfig {
  int64_t bucket_bytes = int64_t{25} << 20;  // a bucket of f32 gradients has no more, unless it is one unit
  GradientPayload payload = {};
  // Throws a kUsage error that names the key.
  void validate() const;
};

// Gradients of consecutive units, which are reduced in one collective.
struct GradientBucket {
  int first_unit = 0, last_unit = 0;
  Tensor grad;           // (n) f32, aliases the units' memory
  Tensor payload = {};   // (n) bf16 or f16; empty if the payload is f32
  Tensor residual = {};  // (n) f32; empty without error feedback
  std::string name = {};
  Pending sum = {};
  bool is_under_way = false;  // its sum was started, and nothing has waited for it
};

class ReplicaSum final : public GradientReduction {
 public:
  // Borrows group and stream. arena: of the payloads, or null if they lie elsewhere.
  ReplicaSum(Communicator& group, std::vector<GradientBucket> buckets, Stream& stream,
             std::unique_ptr<Arena> arena = nullptr);
  ~ReplicaSum() override;  // waits for collectives in flight

  void start_unit(int unit, const std::vector<bool>& is_complete) override;
  void wait() override;
  const Arena* arena() const override { return arena_.get(); }
  std::vector<GradientSum> sums() const override;
  const std::vector<GradientBucket>& buckets() const { return buckets_; }

 private:
  Communicator& group_;
  Stream& stream_;
  std::unique_ptr<Arena> arena_;
  std::vector<GradientBucket> buckets_;
};

// Makes the sum of all gradients of a store, whose ranks in `group` hold the same parameters. REQUIRES: store
// has gradients, and group carries tensors of the stream's device.
std::unique_ptr<ReplicaSum> replica_sum(ResidentStore& store, Communicator& group, const DdpConfig& config,
                                        Stream& stream);

}  // namespace ingot
