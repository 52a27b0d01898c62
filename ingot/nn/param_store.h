// Parameters: what a model declares (ParamSpec), and who holds them (ParamStore).
//
// A unit (embedding, block l, head) is one flat buffer of f32 masters, one of gradients, and for a model in
// bf16 or f16 one of copies in that dtype; every parameter is a range of its unit's buffers. Matrices and
// tables are read in the compute dtype; norm weights and biases (1-D) are read as f32 from the masters. A
// bf16 model may keep its matrices without f32 masters (Masters).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/box.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

enum class Role { kEmbedding, kPosition, kMatrix, kHead, kNorm, kBias };
enum class Init { kZero, kOne, kNormal };

// How a bf16 model keeps the numbers behind its matrices: f32 masters beside the bf16 copies; nothing but the
// bf16 numbers; or those and the low 16 bits of an exact f32 number.
enum class Masters { kF32, kNone, kTail };

// What this rank holds of a parameter that tensor-parallel ranks share.
struct ParamPart {
  struct Rows {
    int64_t first, count;
  };
  Shape full = {};              // of the logical tensor
  std::vector<Rows> rows = {};  // of the logical tensor (elements of a vector), in the order they lie here
  int64_t first_column = 0;     // of the columns, which are all or a range
};

struct ParamSpec {
  std::string name;  // "blocks.3.attention.qkv.weight"
  Shape shape;       // (out features, in features) for a matrix; of this rank's part
  Role role = Role::kMatrix;
  Init init = Init::kNormal;
  double init_std = 0;
  int64_t padding_rows = 0;             // last rows of a padded (logical) table: initialised to zero
  std::vector<int64_t> row_parts = {};  // rows of each, where several matrices lie in one; empty: one
  ParamPart part = {};                  // without rows: the whole is here, on every rank
  int unit = 0;
  int64_t offset = 0;         // elements from the start of its unit
  int64_t vector_offset = 0;  // of a vector: from the start of its unit's vectors

  bool is_vector() const { return shape.rank() == 1; }
  int64_t elements() const { return shape.elements(); }
  // Every element of the logical tensor lies on one tensor-parallel rank alone; else all ranks have all.
  bool is_sharded() const { return !part.rows.empty(); }
  const Shape& full_shape() const { return is_sharded() ? part.full : shape; }
};

// Calls f(here, full, count) for the ranges of `count` elements that lie side by side both here, from element
// `here` on, and in the logical tensor, from `full` on; in order of `here`.
void for_each_range(const ParamSpec& spec, const std::function<void(int64_t, int64_t, int64_t)>& f);

// Where elements [begin, end) of what this rank has of a parameter lie in the logical tensor: boxes in the
// order of the elements, each row by row.
std::vector<Box> boxes_of(const ParamSpec& spec, int64_t begin, int64_t end);

// All parameters of a model, in order of declaration; a parameter's index is its id.
class ParamList {
 public:
  // Parameters start at multiples of this many elements: blocks of 8-bit optimizer states never straddle two.
  static constexpr int64_t kAlign = 256;

  // Appends to the unit, which is the last one declared or the next; sets offset. Returns the id.
  int add(ParamSpec spec);

  const ParamSpec& operator[](int id) const { return specs_[static_cast<size_t>(id)]; }
  const std::vector<ParamSpec>& specs() const { return specs_; }
  int units() const { return static_cast<int>(unit_elements_.size()); }
  int64_t unit_elements(int unit) const { return unit_elements_[static_cast<size_t>(unit)]; }
  int64_t elements() const;  // with the padding between parameters
  int64_t vector_elements(int unit) const { return vector_elements_[static_cast<size_t>(unit)]; }

  // The same parameters under the same ids, of which those of units that are not kept have no elements.
  ParamList keeping(const std::function<bool(int unit)>& keeps) const;

 private:
  std::vector<ParamSpec> specs_;
  std::vector<int64_t> unit_elements_, vector_elements_;
};

// The flat buffers of one unit, (unit_elements) each. compute is master itself for an f32 model.
struct UnitBuffers {
  Tensor master;   // f32; without f32 masters (vector_elements): the vectors alone
  Tensor compute;  // f32, bf16 or f16
  Tensor tail;     // u16, with Masters::kTail
  Tensor grad;     // f32; absent in a store for inference
};

// Seam: who holds unit u. A model calls prefetch before it will need a unit, get when it does, release when
// it is done for now, and grad_ready once all of the unit's gradients of this micro-batch are added.
class ParamStore {
 public:
  explicit ParamStore(const ParamList& list) : list_(list) {}
  virtual ~ParamStore() = default;

  virtual void prefetch([[maybe_unused]] int unit) {}
  virtual const UnitBuffers& get(int unit) = 0;
  virtual void release([[maybe_unused]] int unit) {}
  virtual void grad_ready([[maybe_unused]] int unit) {}

  const ParamList& list() const { return list_; }
  // The parameter as layers read it: f32 for vectors, the compute dtype otherwise. id < 0: absent.
  Tensor weight(int id);
  // Its f32 numbers. Without f32 masters a matrix has them in its gradient's place, between
  // expand_masters or init_params and refresh_compute.
  Tensor master(int id);
  Tensor grad(int id);  // f32, same shape; id < 0: absent
  // The most precise numbers that are always there: the f32 master, or without one the weight.
  Tensor best_weight(int id);

 private:
  const ParamList& list_;  // borrowed from the model, which outlives the store
};

// Elements [begin, end) of a parameter, kept and updated on this rank; n of them.
struct ParamPiece {
  int id = 0;
  int64_t begin = 0, end = 0;
  Tensor w;                // (n) f32; bf16 where there is no f32 master
  Tensor tail;             // (n) u16, with Masters::kTail
  Tensor compute;          // (n) bf16, the copy that layers read; absent where w is read
  Tensor grad;             // (n) f32
  bool is_counted = true;  // in norms over ranks; false where another one has the same numbers

  int64_t elements() const { return end - begin; }
};

// How many ranks hold the same numbers, and which of them this one is. None: they are others' to write down.
struct Holders {
  int64_t count = 1, index = 0;
};

// Seam: the weights of a training, on one rank or shared by several. Where they are shared, all ranks call
// everything but pieces() in the same order.
class TrainingStore : public ParamStore {
 public:
  TrainingStore(const ParamList& list, Masters masters) : ParamStore(list), masters_(masters) {}

  // Before a micro-batch: whether its gradients are the step's last.
  virtual void begin_micro([[maybe_unused]] bool is_last) {}
  // After the last one: from now on the pieces' gradients are those of the whole step. (After another one:
  // those of the micro-batches so far, as far as this rank knows them.)
  virtual void finish_gradients() {}
  // What is kept on this rank of every parameter, in their order; empty where it keeps nothing.
  virtual std::vector<ParamPiece> pieces() = 0;
  // What layers read follows from what was written to the masters (initialised, loaded, averaged; the
  // optimizer keeps both). Without f32 masters: from the gradients' place, which becomes zero.
  virtual void refresh_compute(Stream& stream) = 0;
  // Makes master() of every parameter readable and writable, until refresh_compute. REQUIRES: all gradients
  // are zero.
  virtual void expand_masters(Stream& stream) = 0;
  // The ranks with the same piece of a parameter as this one, and those with any piece of it.
  virtual Holders copies([[maybe_unused]] int id) const { return {}; }
  virtual Holders sharers([[maybe_unused]] int id) const { return {}; }

  // Whether ranks keep different pieces. master() is then for nobody.
  bool is_sharded() const { return is_sharded_; }
  Masters masters() const { return masters_; }
  // What it has taken, for reports.
  const std::vector<const Arena*>& arenas() const { return arenas_; }

 protected:
  std::vector<const Arena*> arenas_;
  bool is_sharded_ = false;

 private:
  Masters masters_;
};

// Everything on this rank.
class ResidentStore : public TrainingStore {
 public:
  // without_grads: for evaluation and generation only.
  // REQUIRES: masters other than kF32 with a bf16 compute dtype and gradients.
  ResidentStore(const ParamList& list, DType compute, bool has_grads = true, Masters masters = Masters::kF32,
                Device device = Device::kCpu, Backing backing = Backing::kMemory);

  const UnitBuffers& get(int unit) override { return units_[static_cast<size_t>(unit)]; }
  std::vector<ParamPiece> pieces() override;  // whole parameters
  void refresh_compute(Stream& stream) override;
  void expand_masters(Stream& stream) override;
  const Arena& params_arena() const { return params_; }
  const Arena& grads_arena() const { return grads_; }

 private:
  Arena params_, grads_;
  std::vector<UnitBuffers> units_;
};

// Initial values into the masters: element i of the logical parameter p is a function of (seed, p, i) alone.
// Without f32 masters: in the gradients' place, until refresh_compute.
void init_params(TrainingStore& store, uint64_t seed, Stream& stream);
void init_params(TrainingStore& store, uint64_t seed);  // on the CPU

}  // namespace ingot
