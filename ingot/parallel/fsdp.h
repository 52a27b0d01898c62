// Fully sharded data parallelism (Zhao et al. 2023, arXiv:2304.11277; ZeRO-3 and -2 of Rajbhandari et al.
// 2020, arXiv:1910.02054): the ranks of a shard group keep one copy of the masters, gradients and optimizer
// state between them; what layers read is put together unit by unit when it is needed.
//
// Fills the seam TrainingStore (nn/param_store.h). Every unit's flat buffer is cut into one shard per rank,
// of equal size, a multiple of 256 elements (blocks of 8-bit states never straddle two). A unit is gathered
// in the compute dtype before its use in forward and again in backward, into a slot: embedding and head have
// one each, the blocks two by turns, so that the next block is gathered while this one computes. Its
// gradients collect in a slot of their own and are reduce-scattered in f32 when backward has left it; the sum
// joins the rank's shard (with accumulation: once per micro-batch, as nobody has memory for whole gradients).
// Replicas of the whole group (HSDP) add their shards up after the last micro-batch.
//
// Norm weights and biases of a bf16 model, which layers read in f32, are small: every rank has them all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/nn/param_store.h"

namespace ingot {

struct FsdpConfig {
  DType compute = DType::f32;
  // True: every unit has a slot, is gathered once per step and stays (ZeRO-2: gradients and state are shared,
  // the copies that layers read are not).
  bool keeps_units = false;
};

class FsdpStore : public TrainingStore {
 public:
  // Borrows all. shard: the ranks that share; replicate: those that keep the same shard.
  FsdpStore(const ParamList& list, Communicator& shard, Communicator& replicate, const FsdpConfig& config,
            Stream& stream);
  ~FsdpStore() override;  // waits for what is under way

  // Valid until the next get or prefetch of another unit.
  const UnitBuffers& get(int unit) override;
  void prefetch(int unit) override;
  void grad_ready(int unit) override;

  void begin_micro(bool is_last) override;
  void finish_gradients() override;
  std::vector<ParamPiece> pieces() override;
  void refresh_compute(Stream& stream) override;
  void expand_masters(Stream& /*stream*/) override {}
  Holders copies(int /*id*/) const override { return {replicate_.size(), replicate_.rank()}; }
  Holders sharers(int /*id*/) const override {
    return {shard_.size() * replicate_.size(), shard_.rank() * replicate_.size() + replicate_.rank()};
  }

  int64_t shard_elements(int unit) const { return units_[static_cast<size_t>(unit)].shard; }

 private:
  struct Unit {
    int64_t shard = 0;    // elements per rank
    Tensor master, grad;  // (shard) f32, this rank's
    size_t slot = 0, grad_slot = 0;
    Tensor vectors;  // (vector_elements) f32, of a bf16 model
    UnitBuffers buffers;
    Pending replicas;  // the sum over the replicas
    std::string gather_name, scatter_name, replicas_name;
  };
  // Memory that units have by turns; `unit` is the one that has it, -1: nobody.
  struct Slot {
    Tensor full;  // (ranks * the largest unit's shard)
    int unit = -1;
    Pending gather;
  };
  struct GradSlot {
    Tensor full;  // as above, f32; zero when nobody has it
    int unit = -1;
    Pending scatter;
    bool is_scattering = false, is_last = false;
  };

  void cut_units();
  void make_slots();
  Tensor own_part(const Tensor& full, int64_t shard) const;
  void start_gather(int unit);
  void drain(GradSlot& slot);
  // The weights have changed: nothing that was gathered is theirs.
  void forget_gathered();
  // Part of parameter `id` that rank `rank` keeps.
  struct Part {
    int64_t begin, end;
  };
  Part part_of(int id, int rank) const;

  Communicator &shard_, &replicate_;
  FsdpConfig config_;
  Stream& stream_;
  std::vector<Unit> units_;
  Arena shards_, grads_, vectors_, copies_, full_grads_;
  std::vector<Slot> slots_;
  std::vector<GradSlot> grad_slots_;
  bool is_stale_ = true, is_last_micro_ = true;
};

}  // namespace ingot
