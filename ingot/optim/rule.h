// What an update rule is. The optimizer (optim/optimizer.h) knows parameters, groups and memory; a rule knows
// how the elements of one parameter move. It declares its state, and keeps none of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/box.h"
#include "ingot/core/parallel.h"
#include "ingot/core/philox.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

enum class OptimizerKind { kSgd, kMomentum, kAdam, kAdamW, kAdafactor, kLion, kAdamW8bit, kMuon };

// Coefficients of Muon's iteration (optim/rules/newton_schulz.h).
enum class NewtonSchulzKind { kQuintic, kPolarExpress };

// What a parameter is in its model.
enum class ParamRole { kEmbedding, kPosition, kMatrix, kHead, kNorm, kBias };

// One parameter, or the piece of one that this rank keeps: n elements in flat ranges that somebody else owns.
struct OptimParam {
  std::string name = {};
  ParamRole role = ParamRole::kMatrix;
  Shape shape = {};             // (out features, in features) of a matrix, (n) of a vector
  Shape logical = {};           // of a piece: the parameter's; the piece has the shape (1, n) or (n)
  std::vector<Box> boxes = {};  // of a piece: where its elements lie in that, in their order
  // Of a piece: its blocks of 256 elements of the parameter may be shared with other ranks. If not, it is a
  // range of the parameter that begins at a multiple of 256.
  bool is_scattered = false;
  std::vector<int64_t> row_parts = {};  // rows of each, where matrices share one tensor (q, k, v); empty: one
  Tensor w = {};                        // (n) f32, updated; or bf16, then the next two say how it is rounded
  Tensor tail = {};                     // (n) u16: with a bf16 w an exact f32 number (ops/bf16_tail.h)
  RandomKey rounding = {};              // of a bf16 w without tail: stochastic, step by step
  Tensor compute = {};  // (n) bf16 or f16, set to the new w rounded to nearest even; or absent
  Tensor g = {};        // (n) f32, read and set to zero
  // False where another rank has the same numbers: in norms over all ranks, and in what the ranks that share
  // an update (optim/shared_update.h) add up.
  bool is_counted = true, is_added = true;

  bool is_matrix() const { return shape.rank() == 2; }
  bool is_piece() const { return logical.rank() > 0; }
  const Shape& whole() const { return is_piece() ? logical : shape; }
  int64_t elements() const { return shape.elements(); }
  int64_t whole_elements() const { return whole().elements(); }
  int64_t columns() const { return is_matrix() ? whole()[1] : 1; }  // of the whole
  // The first element of a piece that is a range, in the whole.
  int64_t begin() const { return boxes.empty() ? 0 : boxes[0].row * columns() + boxes[0].column; }
};

// The numbers of a rule; each reads its own. The defaults are the rule's (optim/rules/all_rules.h).
struct RuleParams {
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
  double momentum_start = 0;    // of the linear momentum warm-up
  int64_t momentum_warmup = 0;  // its steps; 0: none
  bool has_nesterov = false;
  bool has_relative_step = true;  // Adafactor
  double update_clip = 1;         // Adafactor: largest root mean square of an update
  NewtonSchulzKind newton_schulz = NewtonSchulzKind::kQuintic;
  DType newton_schulz_dtype = DType::bf16;  // or f32
  bool has_variance_reduction = false;
  bool has_cautious_decay = false;
  bool splits_fused = true;  // Muon: the matrices of row_parts are orthogonalised one by one
};

// What one step adds to them, for one parameter.
struct RuleStep {
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;  // the rule's momentum, or its beta1
  int64_t t = 1;        // 1 at the first update
  float grad_scale = 1;
  // (1) f32 on a CUDA device, or absent: multiplies g before grad_scale does, and if it is NaN the update
  // only sets g to zero.
  Tensor factor = {};
  float average_part = 0;  // of the new w in its moving average
  bool wants_totals = false;
};

// What the numbers of a state belong to. Of a piece, a rank has those of its elements or blocks; those of the
// whole parameter every rank has.
enum class StateScope { kElement, kBlock, kWhole };

// A tensor of a rule's state for one parameter, zero before the first step.
struct StateSpec {
  std::string name = {};  // "m"
  DType dtype = DType::f32;
  Shape shape = {};
  StateScope scope = StateScope::kElement;
};

// A parameter with the state that its rule declared, in that order.
struct ParamState {
  OptimParam param;
  std::vector<Tensor> state;
  Tensor average = {};  // (n) f32, the moving average of w; absent: none is kept
};

// Sums over a range of elements; the squares and the product only where a step wants totals.
struct RangeTotals {
  double weight_squares = 0;     // of w before the update
  double grad_squares = 0;       // of g * grad_scale
  double update_squares = 0;     // of the change of w
  double update_dot_weight = 0;  // change times w before it
  int64_t non_finite = 0;        // gradients that an 8-bit rule passed over
};

// What a rule worked out about a whole parameter before its elements may change.
struct Prepared {
  Tensor direction;  // (n) f32 or bf16; Muon
  Tensor before;     // f32, what the state was; 8-bit rules on scattered pieces
  double factor = 0;
  double divisor = 1;
};

// What a rule must know of a parameter before it may change it.
struct RuleNeeds {
  bool is_matrix = false;    // a direction made from the whole matrix; such a rule is Muon
  bool is_whole = false;     // prepare must have seen all elements that are here
  size_t scratch_bytes = 0;  // of prepare
  // Of a piece, numbers that the ranks with pieces of the parameter combine, in two turns.
  std::array<int64_t, 2> shared{};
  bool takes_maxima = false;  // combine: the maximum, else the sum
};

// The combined numbers (shared[0]) and (shared[1]) f32; absent before their turn.
using SharedNumbers = std::array<Tensor, 2>;

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  virtual std::vector<StateSpec> state(const OptimParam& param) const = 0;
  virtual RuleNeeds needs([[maybe_unused]] const OptimParam& param) const { return {}; }
  // Turn 0, then 1, as far as needs says: numbers[turn] is zero, and becomes this rank's part of what is
  // combined. May change the state.
  virtual void measure([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleStep& step,
                       [[maybe_unused]] const SharedNumbers& numbers, [[maybe_unused]] int turn) const {}
  // Called from the thread that drives the stream. May change the state; what it takes from scratch stays
  // taken until the parameter is updated.
  virtual Prepared prepare([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleStep& step,
                           [[maybe_unused]] const SharedNumbers& numbers,
                           [[maybe_unused]] Arena& scratch) const {
    return {};
  }
  // Updates elements of the range; called from any thread, for disjoint ranges that begin at a multiple of
  // 256. Element by element, or by 256, so the result does not depend on the number of threads.
  virtual RangeTotals update(const ParamState& p, Range range, const RuleStep& step,
                             const Prepared& prepared) const = 0;
};

}  // namespace ingot
