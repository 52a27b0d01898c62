// The interfaces of an update rule. The optimizer (optim/optimizer.h) handles parameters, groups and
// memory; a rule computes how the elements of one parameter move. It declares the state it needs and
// stores none itself. An UpdateRule moves each element for itself; a MatrixRule needs the whole matrix. The
// object of a rule works on one device, which the table of rules chose (optim/rules/all_rules.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/parallel.h"
#include "ingot/core/param_role.h"
#include "ingot/core/philox.h"
#include "ingot/core/rect.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// One parameter, or this rank's shard of one: n elements in flat ranges of memory that the caller owns.
struct OptimParam {
  std::string name = {};
  int id = 0;  // the parameter's, in the list of the model
  ParamRole role = ParamRole::kMatrix;
  Shape shape = {};    // (out features, in features) of a matrix, (n) of a vector; (1, n) or (n) of a shard
  Shape logical = {};  // shards only: shape of the whole parameter
  std::vector<Rect> rects = {};  // shards only: where the elements lie in the parameter, in their order
  // For a shard: true if its blocks of 256 elements of the parameter may be split between ranks. If false,
  // the shard is a range of the parameter that begins at a multiple of 256.
  bool is_scattered = false;
  std::vector<int64_t> fused_rows = {};  // rows of each matrix fused into this one (q, k, v); empty: one
  Tensor w = {};     // (n) f32, updated; or bf16, for which tail and rounding select the rounding
  Tensor tail = {};  // (n) u16; with a bf16 w it makes an exact f32 value (ops/bf16_tail.h)
  // For a bf16 w without tail: key of the stochastic rounding. An element's random bits are those of its
  // place in the whole parameter.
  RandomKey rounding = {};
  Tensor compute = {};   // (n) bf16 or f16 copy, set to the new w rounded to nearest even; or empty
  Tensor g = {};         // (n) f32, read and then zeroed
  bool keeps_g = false;  // g is not zeroed, because the next step overwrites it
  // False if another rank has the same elements: contributes_to_norm for norms over all ranks, is_added for
  // sums over the ranks that share an update (optim/update_comm.h). Of a shard the last `copies` elements may
  // be on another rank too, which counts and adds them.
  bool contributes_to_norm = true, is_added = true;
  int64_t copies = 0;

  bool is_matrix() const { return shape.rank() == 2; }
  bool is_shard() const { return logical.rank() > 0; }
  const Shape& whole() const { return is_shard() ? logical : shape; }
  int64_t elements() const { return shape.elements(); }
  int64_t whole_elements() const { return whole().elements(); }
  int64_t own_elements() const { return elements() - copies; }  // the first ones
  int64_t counted_elements() const { return contributes_to_norm ? own_elements() : 0; }
  int64_t added_elements() const { return is_added ? own_elements() : 0; }
  int64_t columns() const { return is_matrix() ? whole()[1] : 1; }  // columns of the whole parameter
  // For a shard that is a range: its first element in the whole parameter.
  int64_t begin() const { return rects.empty() ? 0 : rects[0].row * columns() + rects[0].column; }
};

// The inputs of one step for one parameter.
struct RuleStep {
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;  // the rule's momentum, or its beta1
  int64_t t = 1;        // 1 at the first update
  float grad_scale = 1;
  // (1) f32 on a CUDA device, or empty. g is multiplied by it and by grad_scale. If it is NaN, the
  // update only zeroes g, if it does that.
  Tensor factor = {};
  float average_part = 0;  // weight of the new w in its moving average
  bool wants_totals = false;
};

// StateScope is the part of a parameter to which each number of a state belongs. For a shard, a rank holds
// the numbers of its elements or blocks; the numbers of the whole parameter are on every rank.
enum class StateScope { kElement, kBlock, kWhole };

// A tensor of a rule's state for one parameter; it is zero before the first step.
struct StateSpec {
  std::string name = {};  // "m"
  DType dtype = DType::f32;
  Shape shape = {};
  StateScope scope = StateScope::kElement;
};

// A parameter with the state that its rule declared, in the order of declaration.
struct ParamState {
  OptimParam param;
  std::vector<Tensor> state;
  Tensor average = {};  // (n) f32, the moving average of w; or empty
};

// The elements that an update on the CPU moves at a time; a multiple of 256, the block size of 8-bit states.
inline constexpr int64_t kRangeElements = 1 << 15;

// Sums over a range of elements; the squares and the product are set only if the step wants totals.
struct RangeTotals {
  double weight_squares = 0;     // sum of w^2 before the update
  double grad_squares = 0;       // sum of (g * grad_scale)^2
  double update_squares = 0;     // sum of squares of the change of w
  double update_dot_weight = 0;  // change times w before the update
  int64_t non_finite = 0;        // gradients that an 8-bit rule skipped
};

// The results of the two reductions, (shared[0]) and (shared[1]) f32; empty before they are made.
using Reductions = std::array<Tensor, 2>;

// ParamUpdate is one parameter in one step.
struct ParamUpdate {
  const ParamState& p;
  const RuleStep& step;
  const Reductions& reductions;
  Tensor direction = {};  // (n) f32 or bf16; for matrix rules
  // Here the update writes its totals; both are empty if they are not wanted. `totals` has one for each
  // kRangeElements elements and is for the CPU; device_totals is for a CUDA device (optim/cuda_update.h).
  std::span<RangeTotals> totals = {};
  Tensor device_totals = {};
};

// RuleNeeds says what a rule needs before it can update a parameter.
struct RuleNeeds {
  // True if the update needs reductions, or sums over this rank's elements, before it moves the first.
  bool is_whole = false;
  // For a shard: how many numbers the ranks that hold shards of the parameter reduce, in each of two
  // reductions.
  std::array<int64_t, 2> shared{};
  bool takes_maxima = false;  // they combine by maximum; otherwise by sum
};

// On a CUDA device all tensors are there, and the host does not wait for it. If the step's factor is NaN, the
// state stays as it is, and what reduce, move_momentum and orthogonalise write has no meaning.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  virtual std::vector<StateSpec> state(const OptimParam& param) const = 0;
  virtual RuleNeeds needs([[maybe_unused]] const OptimParam& param) const { return {}; }
  // The scratch that any one of the functions below needs for the parameter.
  virtual size_t scratch_bytes([[maybe_unused]] const OptimParam& param) const { return 0; }
  // Called for order 0, then 1, for each reduction that needs().shared asks for. reductions[order] is zero on
  // entry; the rule fills it with this rank's contribution. May change the state.
  virtual void reduce([[maybe_unused]] const ParamUpdate& update, [[maybe_unused]] int order,
                      [[maybe_unused]] Arena& scratch, [[maybe_unused]] Stream& stream) const {}
  // Updates parameters: one if its needs say is_whole or if the rule is a MatrixRule, else any number. The
  // result does not depend on the number of threads. The caller releases the scratch.
  virtual void update(std::span<const ParamUpdate> updates, Arena& scratch, Stream& stream) const = 0;
};

// A rule that moves a matrix along a direction that depends on all of its elements. The ranks that hold
// shards of the matrix bring their inputs together, one of them computes the direction, and each moves its
// own elements (optim/update_comm.h). update finds the direction in ParamUpdate; reduce is not called.
class MatrixRule : public UpdateRule {
 public:
  // Updates the momentum and sets u (n) f32, the input of the direction, for a shard or the whole parameter.
  virtual void move_momentum(const ParamState& p, const RuleStep& step, const Tensor& u,
                             Stream& stream) const = 0;
  // Turns u (R, C) f32, the input of the whole matrix, into the direction. May change the state whose scope
  // is kWhole.
  virtual void orthogonalise(const ParamState& p, const RuleStep& step, const Tensor& u, Arena& scratch,
                             Stream& stream) const = 0;
  // Number of multiplications and additions of orthogonalise.
  virtual double flops(const OptimParam& param) const = 0;
};

}  // namespace ingot
