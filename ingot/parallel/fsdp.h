// Fully sharded data parallelism (Zhao et al. 2023, arXiv:2304.11277; ZeRO-3 and -2 of Rajbhandari et al.
// 2020, arXiv:1910.02054): the ranks of a shard group hold one copy of the masters, gradients and
// optimizer state together. The weights that layers read are gathered unit by unit when they are needed.
//
// FsdpStore implements the interface TrainingStore (nn/param_store.h). Every unit's flat buffer is cut
// into one shard per rank; all shards of a unit have the same size, a multiple of 256 elements, so blocks
// of 8-bit state never straddle two shards. A unit is gathered in the compute dtype before its use in
// forward and again in backward, into a slot: embedding and head have one slot each, and the blocks
// take turns in three, so the next two blocks are gathered while this one computes. A unit's gradients
// accumulate in a slot of their own, of which the blocks have two, and are reduce-scattered when backward has
// left the unit, rounded to the payload's dtype and summed in f32; the sum is added to the rank's shard (with
// gradient accumulation, once per micro-batch, because no rank has memory for whole gradients). Replicas of
// the whole group (HSDP) sum their shards after the last micro-batch, also rounded, without error feedback.
//
// Norm weights and biases of a bf16 model, which layers read in f32, are small, so every rank holds
// them all. Frozen matrices are cut and gathered like the others, in the compute dtype; every rank holds the
// frozen vectors and, with keeps_units, all frozen matrices. The unit of an f32 head is gathered in f32, and
// cast for the layers that read the compute dtype. Without f32 masters (Masters::kNone) the shards are in the
// compute dtype, and those of norm weights and biases in f32. Tails (Masters::kTail) would be of no use,
// because an f32 shard has as many bytes and the same numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/core/parallel.h"
#include "ingot/nn/param_store.h"
#include "ingot/parallel/gradient_payload.h"
#include "ingot/parallel/replica_sum.h"

namespace ingot {

struct FsdpConfig {
  DType compute = DType::f32;
  bool has_f32_masters = true;  // false only if compute is bf16, and without an f32_unit
  // If true, every unit has its own slot, is gathered once per step and stays there (ZeRO-2: gradients
  // and optimizer state are sharded, the weights that layers read are not).
  bool keeps_units = false;
  int f32_unit = -1;  // layers read the masters of this unit; -1: of none, or compute is f32
  GradientPayload payload = {};
  bool has_replicas =
      false;  // other ranks hold the same shards (HSDP), and replica_buckets() are summed over them
};

class FsdpStore : public TrainingStore {
 public:
  // Borrows all arguments except config. shard: the ranks that shard one copy.
  FsdpStore(const ParamList& list, Communicator& shard, const FsdpConfig& config, Stream& stream);
  ~FsdpStore() override;  // waits for collectives in flight

  void wait_weights(int unit) override;
  bool has_weights(int unit) const override;
  const UnitBuffers& buffers(int unit) override { return units_[static_cast<size_t>(unit)].buffers; }
  // Gathers the units from the last prefetched one to this one and the one behind it, in that order.
  void prefetch(int unit) override;
  OldGradients open_gradients(int unit) override;
  void start_reduction(int unit) override;
  void begin_graphs() override;
  void refresh_compute(Stream& stream) override;
  void expand_masters(Stream& stream) override;
  // A bucket for each unit's shard, for a ReplicaSum.
  std::vector<GradientBucket> replica_buckets() const;

 private:
  struct Unit {
    int64_t shard = 0;  // elements per rank
    Tensor master;      // (shard) f32, this rank's shard; in the compute dtype without f32 masters
    Tensor grad;        // (shard) f32
    size_t slot = 0, grad_slot = 0;
    Tensor vectors;  // (vector_elements) f32; empty for an f32 model
    // (vector_elements) f32: the norms and biases among this rank's elements; empty with f32 masters.
    Tensor own_vectors;
    UnitBuffers buffers;
    int64_t frozen_shard = 0;  // elements per rank
    Tensor frozen;             // (frozen_shard) in the compute dtype; empty with keeps_units
    Tensor residual;           // (ranks * shard) f32; empty without error feedback
    Tensor replica_payload;    // (shard), what is sent to the replicas; empty if that is grad
    std::string gather_name, scatter_name;
  };
  // Memory that units use in turn; state_ has the unit that uses it now.
  struct Slot {
    Tensor full;    // (ranks * the largest unit's shard)
    Tensor frozen;  // the same for the frozen matrices
    Pending gather, frozen_gather;
    bool is_gathering = false;
  };
  struct GradSlot {
    Tensor full;     // same size, f32
    Tensor payload;  // same size, what is sent; empty if that is full
    Pending scatter;
    bool is_scattering = false, is_last = false;
  };

  std::vector<ParamShard> held_shards() override;
  std::vector<ParamShard> frozen_shards() override;
  std::vector<GradientSum> memory_sums() const override;
  void wait_memory() override;
  void end_memory_step() override;
  bool is_in_f32(int unit) const { return unit == config_.f32_unit && config_.compute != DType::f32; }
  void cut_units();
  void make_slots();
  void make_frozen(Arena& arena);
  Tensor own_shard(const Tensor& full, int64_t shard) const;
  void start_gather(int unit);
  void wait_gather(size_t slot);
  void drain(size_t slot);
  void drain_all();
  bool exchanges(const GradSlot& slot) const;
  Tensor exchanged(const GradSlot& slot, int64_t shard) const;
  // Invalidates all gathered weights; forget_gathered() because the masters have changed.
  void drop_gathered();
  void forget_gathered();
  // The range of a trained parameter or of a frozen matrix that rank `rank` holds.
  Range range_of(int id, int rank) const;

  Communicator& shard_;
  FsdpConfig config_;
  Stream& stream_;
  std::vector<Unit> units_;
  Arena shards_, grads_, vectors_, copies_, full_grads_, payloads_;
  std::optional<Arena> frozen_;  // shards, vectors and slots
  std::vector<Slot> slots_;
  std::vector<GradSlot> grad_slots_;
};

}  // namespace ingot
