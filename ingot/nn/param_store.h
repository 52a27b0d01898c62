// Parameters: what a model declares (ParamSpec), and the memory that holds them (ParamStore).
//
// A unit (embedding, block l, head) has one flat buffer of f32 masters, one of gradients, and in a bf16 or
// f16 model one of copies in that dtype; every parameter is a range of its unit's buffers. Layers read
// matrices and tables in the compute dtype, and norm weights and biases (1-D) as f32 from the masters. A
// bf16 model may keep its matrices without f32 masters (Masters). Frozen parameters have no masters and no
// gradients: a unit has a flat buffer of its frozen matrices in the compute dtype, and one of its frozen
// vectors in f32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/parallel.h"
#include "ingot/core/param_role.h"
#include "ingot/core/rect.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

class Staging;
struct Int8Matrix;  // ops/int8_matrix.h

enum class Init { kZero, kHalf, kOne, kNormal };

// Masters says how a bf16 model stores the values of its matrices. kF32: f32 masters next to the bf16 copies.
// kNone: only the bf16 values. kTail: the bf16 values and the low 16 bits of an exact f32 value.
enum class Masters { kF32, kNone, kTail };

// This rank's slice of a parameter that is sharded over tensor-parallel ranks.
struct TensorSlice {
  struct Rows {
    int64_t first, count;
  };
  Shape full = {};              // shape of the logical tensor
  std::vector<Rows> rows = {};  // rows of the logical tensor (elements of a vector), in local order
  int64_t first_column = 0;     // first column of the slice, which has all columns or a range of them
  int64_t common_rows = 0;      // the last rows of the slice that neighbouring ranks have too
  bool has_copies = false;      // true if another rank counts and saves the common rows
};

struct ParamSpec {
  std::string name;  // "blocks.3.attention.qkv.weight"
  Shape shape;       // (out features, in features) of a matrix; of this rank's slice
  ParamRole role = ParamRole::kMatrix;
  Init init = Init::kNormal;
  double init_std = 0;
  int64_t padding_rows = 0;  // last rows of a padded (logical) table, initialised to zero
  // True if the first gradient of a step is written over that of the last one, and not added to zeros.
  bool is_overwritten = false;
  std::vector<int64_t> fused_rows = {};  // logical rows of each matrix if several are fused; empty: one
  TensorSlice slice = {};                // empty rows: every rank has the whole tensor
  int unit = 0;
  bool is_trained = true;  // false: frozen
  // In elements from the start of its unit's trained parameters, or of its frozen matrices.
  int64_t offset = 0;
  int64_t vector_offset = 0;  // vectors only: from the start of its unit's trained vectors, or frozen ones

  bool is_vector() const { return shape.rank() == 1; }
  int64_t elements() const { return shape.elements(); }
  // True if each element of the logical tensor lies on one tensor-parallel rank, or on a few if it is among
  // the common rows; otherwise every rank has all of them.
  bool is_sharded() const { return !slice.rows.empty(); }
  // The last elements of this rank's slice that neighbouring ranks have too.
  int64_t common_elements() const { return slice.common_rows * (is_vector() ? 1 : shape[1]); }
  // Returns how many of elements [begin, end), the last ones, are counted and saved by another rank.
  int64_t copies(int64_t begin, int64_t end) const {
    const int64_t first = std::max(begin, elements() - common_elements());
    return slice.has_copies ? std::max<int64_t>(0, end - first) : 0;
  }
  const Shape& full_shape() const { return is_sharded() ? slice.full : shape; }
};

// Calls f(here, full, count) for every range of `count` elements that is contiguous both on this rank,
// from element `here` on, and in the logical tensor, from element `full` on; in order of `here`.
void for_each_range(const ParamSpec& spec, const std::function<void(int64_t, int64_t, int64_t)>& f);

// Returns where elements [begin, end) of this rank's slice of a parameter lie in the logical tensor:
// rectangles in the order of the elements, each row by row.
std::vector<Rect> rects_of(const ParamSpec& spec, int64_t begin, int64_t end);

// All parameters of a model, in order of declaration; a parameter's index is its id.
class ParamList {
 public:
  // Parameters start at multiples of this many elements, so no block of an 8-bit optimizer state spans two.
  static constexpr int64_t kAlign = 256;

  // Appends a parameter to its unit, which is the last one declared or the next, and sets its offset.
  // Returns the id.
  int add(ParamSpec spec);

  const ParamSpec& operator[](int id) const { return specs_[static_cast<size_t>(id)]; }
  const std::vector<ParamSpec>& specs() const { return specs_; }
  int units() const { return static_cast<int>(sizes_.size()); }
  // The next three count trained parameters, with the padding between them.
  int64_t unit_elements(int unit) const { return sizes_[static_cast<size_t>(unit)].trained; }
  int64_t elements() const;
  int64_t vector_elements(int unit) const { return sizes_[static_cast<size_t>(unit)].vectors; }
  // The next two count the elements of frozen matrices, and those of frozen vectors.
  int64_t frozen_elements(int unit) const { return sizes_[static_cast<size_t>(unit)].frozen; }
  int64_t frozen_vectors(int unit) const { return sizes_[static_cast<size_t>(unit)].frozen_vectors; }
  bool has_frozen() const;

  // Returns the same parameters under the same ids; those of units that are not kept have no elements.
  ParamList keeping(const std::function<bool(int unit)>& keeps) const;
  // Returns the same parameters under the same ids, of which all but the given ones are frozen.
  ParamList training(const std::vector<int>& trained) const;

 private:
  struct Sizes {
    int64_t trained = 0, vectors = 0, frozen = 0, frozen_vectors = 0;
  };
  static void place(ParamSpec& spec, Sizes& unit);

  std::vector<ParamSpec> specs_;
  std::vector<Sizes> sizes_;  // by unit
};

// The flat buffers of one unit, (unit_elements) each. In an f32 model compute is master.
struct UnitBuffers {
  Tensor master;               // f32; without f32 masters only the vectors (vector_elements)
  Tensor compute;              // f32, bf16 or f16
  Tensor tail;                 // u16; only with Masters::kTail
  Tensor grad;                 // f32; empty in a store for inference
  Tensor frozen = {};          // (frozen_elements) in the compute dtype
  Tensor frozen_vectors = {};  // (frozen_vectors) f32
};

// OldGradients says which old gradients the memory of a unit holds when it is opened. The rest is zeros or
// gradients of this step.
enum class OldGradients {
  kNone,
  kOverwritten,  // those of an earlier step, in the parameters whose spec is is_overwritten
  kAll           // those of another unit or of another micro-batch, in all parameters
};

// The store of a model's parameters. The model calls prefetch before it will need a unit, and wait_weights
// before it reads the unit's weights. It calls open_gradients before the first gradient of a unit in the
// head's forward and in backward, and start_reduction once all gradients of the unit in this micro-batch have
// been added.
class ParamStore {
 public:
  explicit ParamStore(const ParamList& held) : held_(held) {}
  virtual ~ParamStore() = default;

  virtual void prefetch([[maybe_unused]] int unit) {}
  // Waits until the unit's weights are in memory. Those of the embedding and the head stay until the masters
  // change, those of a block until another block's are awaited.
  virtual void wait_weights([[maybe_unused]] int unit) {}
  virtual bool has_weights([[maybe_unused]] int unit) const { return true; }
  virtual const UnitBuffers& buffers(int unit) = 0;
  // Waits until the memory of the unit's gradients is free, if another unit uses it. The caller overwrites or
  // zeroes what is old.
  virtual OldGradients open_gradients([[maybe_unused]] int unit) { return OldGradients::kNone; }
  virtual void start_reduction([[maybe_unused]] int unit) {}

  // The parameters that are in memory, and those of the model, which has others if this rank holds only some
  // units. Their ids are the same.
  const ParamList& held() const { return held_; }
  const ParamList& list() const { return *list_; }
  // The parameter as layers read it: f32 for vectors, the compute dtype otherwise. Empty if id < 0. REQUIRES:
  // has_weights().
  virtual Tensor weight(int id);
  // The parameter if the store has 8-bit codes instead of weight(), otherwise null; generation reads both
  // kinds. The room is for products with it (ops/int8_matrix.h).
  virtual const Int8Matrix* int8_weight([[maybe_unused]] int id) { return nullptr; }
  virtual Tensor int8_room() { return {}; }
  // The parameter's f32 values. Without f32 masters those of a matrix are in its gradient's memory, and
  // only from expand_masters or init_params until refresh_compute.
  Tensor master(int id);
  // The gradient, f32, of the same shape, to which layers add; empty if id < 0 or the parameter is frozen.
  Tensor grad(int id);
  // The most precise values that always exist: the f32 master, or without one the weight.
  Tensor best_weight(int id);

 protected:
  const ParamList& held_;  // borrowed, as is the other
  const ParamList* list_ = &held_;

 private:
  const UnitBuffers& awaited(int unit);
};

// Elements [begin, end) of a parameter, which this rank stores and updates; n is their number.
struct ParamShard {
  int id = 0;
  int64_t begin = 0, end = 0;
  Tensor w;                         // (n) f32; bf16 without f32 masters
  Tensor tail;                      // (n) u16; only with Masters::kTail
  Tensor compute;                   // (n) bf16 or f16, the copy that layers read; empty if they read w
  Tensor grad;                      // (n) f32
  bool is_overwritten = false;      // the next step writes over grad, so the update need not zero it
  bool contributes_to_norm = true;  // in norms over ranks; false if another rank counts the same elements

  int64_t elements() const { return end - begin; }
  // The f32 values (n), to be written before TrainingStore::refresh_compute: w or, without f32 masters, the
  // gradients' memory.
  Tensor values() const { return w.dtype == DType::f32 ? w : grad; }
};

// The replicas of a shard: the number of ranks that hold it, and this rank's index among them. count == 0
// if other ranks write it to checkpoints.
struct Replicas {
  int64_t count = 1, index = 0;
};

// The ranks that hold the weights of a store, and this rank's index among them.
struct StoreRanks {
  Replicas data = {};    // the same shards
  Replicas shards = {};  // the shards of one copy
  Replicas tensor = {};  // the slices of one copy of the sharded parameters, and a copy of all others
  // Stages: returns true on the one rank of a pipeline that counts and saves the unit. Empty without stages.
  std::function<bool(int unit)> is_owner = {};
};

// The gradients in `memory` (f32) become a sum over the ranks of the named group.
struct GradientSum {
  std::string group;
  Tensor memory;
};

// A sum of gradients over ranks, which a store runs.
class GradientReduction {
 public:
  enum class When { kUnit, kStep };  // as soon as a unit is complete, or after the last micro-batch
  explicit GradientReduction(When when) : when(when) {}
  virtual ~GradientReduction() = default;

  // kUnit: starts what is due now that this rank has the unit's gradients of the whole step. is_complete: per
  // unit.
  virtual void start_unit([[maybe_unused]] int unit, [[maybe_unused]] const std::vector<bool>& is_complete) {}
  // kStep: starts the sums of the step. The reductions before this one in the list have ended.
  virtual void start_step() {}
  // Waits, in the order of the stream, for what was started.
  virtual void wait() = 0;
  virtual const Arena* arena() const { return nullptr; }  // its memory; null without any
  virtual std::vector<GradientSum> sums() const = 0;

  const When when;
};

// A store remembers this between the passes of a step.
struct StoreState {
  std::vector<bool> has_gradients;      // per unit: its memory, or its shard, has gradients of this step
  std::vector<bool> is_complete;        // per unit: it has all of them; used if a reduction wants to know
  std::vector<int> weights, gradients;  // sharded: the unit that uses each slot; -1: none
  int prefetched = 0;                   // sharded: the unit that was prefetched last
  bool is_stale = true;                 // sharded: the masters have changed since units were gathered
  bool operator==(const StoreState&) const = default;
};

// The weights of a training run, on one rank or several: a memory (ResidentStore, FsdpStore) and a list of
// reductions of the gradients in it. If there are several ranks, all call everything but shards() in the same
// order. What starts with wait_ waits for other ranks.
class TrainingStore : public ParamStore {
 public:
  TrainingStore(const ParamList& held, Masters masters);

  // The next two precede the first step. place: `model` is list() from now on, and is borrowed.
  void place(const ParamList& model, StoreRanks ranks);
  void add(std::unique_ptr<GradientReduction> reduction);  // to the end of the list

  // Called before the first micro-batch of a step: from now on the gradients are old.
  void begin_step();
  // Called before a micro-batch; is_last says whether its gradients are the last of the step.
  void begin_micro(bool is_last) { is_last_micro_ = is_last; }
  // Called after the last micro-batch; makes the shards' gradients those of the whole step. (After an
  // earlier micro-batch they are those of the micro-batches so far, as far as this rank has them.) Throws an
  // Error if a unit that is summed over replicas never was complete.
  void wait_gradients();
  // The next three are for passes that run as CUDA graphs. begin_graphs precedes a step of such passes: they
  // must find the same in every step, so the store forgets what it holds of the weights.
  virtual void begin_graphs() {}
  // Ends, in the order of the stream, everything that the store has started on other streams. It precedes
  // every graph, which must not depend on anything outside, and is the last that the graph captures.
  void wait_messages();
  // A graph was launched in place of passes, which left the store in this state when they were captured. They
  // found the state in which the store is now.
  void replayed(const StoreState& after) { state_ = after; }
  const StoreState& state() const { return state_; }
  // This rank's shard of every trained parameter, in order of the parameters; empty where it has no elements.
  std::vector<ParamShard> shards();
  // Every sum of gradients over other ranks, once per step or with each micro-batch, for proofs.
  std::vector<GradientSum> sums() const;
  // The elements of every frozen parameter that this rank stores, for write_frozen. They have no gradients.
  virtual std::vector<ParamShard> frozen_shards() = 0;
  // Updates what layers read after the masters were written (initialised, loaded, averaged); the
  // optimizer itself updates both. Without f32 masters it reads the values from the gradients' memory,
  // which becomes zero.
  virtual void refresh_compute(Stream& stream) = 0;
  // Makes master() of every parameter readable and writable until refresh_compute. Without f32 masters the
  // gradients are lost.
  virtual void expand_masters(Stream& stream) = 0;
  // The elements of a shard, counted from its begin, that this rank writes to checkpoints.
  Range written(const ParamShard& shard) const;
  // The ranks that hold the same shard of a parameter as this one, and the ranks that hold any shard of it.
  Replicas replicas(int id) const;
  Replicas shard_group(int id) const;

  // True if ranks hold different shards. REQUIRES for master(): the store is not sharded.
  bool is_sharded() const { return is_sharded_; }
  Masters masters() const { return masters_; }
  // The arenas that the store has allocated, for reports.
  const std::vector<const Arena*>& arenas() const { return arenas_; }

 protected:
  virtual std::vector<ParamShard> held_shards() = 0;
  // Waits for all messages about weights and gradients in memory.
  virtual void wait_memory() {}
  // Waits for those about gradients; the update follows if the step is over.
  virtual void end_memory_step() {}
  // The sums that the memory makes itself.
  virtual std::vector<GradientSum> memory_sums() const { return {}; }
  // The memory has the unit's gradients of the whole step.
  void complete(int unit);
  bool is_last_micro() const { return is_last_micro_; }
  // Waits for the reductions, which use the memory, before it ends.
  void end_reductions() { reductions_.clear(); }

  std::vector<const Arena*> arenas_;
  bool is_sharded_ = false;
  StoreState state_;

 private:
  void begin_completing();
  bool is_owner(int id) const { return !ranks_.is_owner || ranks_.is_owner(list()[id].unit); }

  Masters masters_;
  StoreRanks ranks_;
  std::vector<std::unique_ptr<GradientReduction>> reductions_;
  bool sums_units_ = false;  // a reduction is kUnit
  bool is_last_micro_ = true;
};

// The memory of a unit's frozen parameters, whole; nothing is allocated if the list has none. frozen_bytes:
// of all units.
size_t frozen_bytes(const ParamList& list, DType compute);
void allocate_frozen(UnitBuffers& unit, const ParamList& list, int u, DType compute, Arena& arena);

// A store that holds everything on this rank.
class ResidentStore : public TrainingStore {
 public:
  // has_grads is false for evaluation and generation only. REQUIRES: masters other than kF32 come with a bf16
  // compute dtype and gradients; kNone also with any 16-bit one and no gradients, where matrices have a
  // weight() but no master().
  ResidentStore(const ParamList& list, DType compute, bool has_grads = true, Masters masters = Masters::kF32,
                Device device = Device::kCpu, Backing backing = Backing::kMemory);
  ~ResidentStore() override { end_reductions(); }

  const UnitBuffers& buffers(int unit) override { return units_[static_cast<size_t>(unit)]; }
  OldGradients open_gradients(int unit) override;
  void start_reduction(int unit) override;
  void refresh_compute(Stream& stream) override;
  void expand_masters(Stream& stream) override;
  const Arena& params_arena() const { return params_; }
  const Arena& grads_arena() const { return grads_; }

 private:
  std::vector<ParamShard> held_shards() override;  // whole parameters
  std::vector<ParamShard> frozen_shards() override;

  Arena params_, grads_;
  std::vector<UnitBuffers> units_;
};

// Writes a frozen shard's values (n) f32, rounded to its dtype.
void write_frozen(const ParamShard& shard, const Tensor& values, Staging& staging, Stream& stream);

// Initialises the masters and the frozen parameters: element i of the logical parameter p is a function of
// (seed, p, i) only. Without f32 masters the values are in the gradients' memory until refresh_compute.
void init_params(TrainingStore& store, uint64_t seed, Stream& stream);
void init_params(TrainingStore& store, uint64_t seed);  // on the CPU

}  // namespace ingot
