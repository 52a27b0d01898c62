// Activation checkpointing: which values of the forward pass are kept for backward follows from a
// RecomputePlan (nn/recompute.h), and what is not kept is made again. Results that a plan shares between
// blocks (Storage::kShared) are made again for a whole segment of blocks before its backward pass; others
// (Storage::kNone) just before they are read.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "ingot/nn/primitives/norm.h"
#include "ingot/nn/program/passes.h"

namespace ingot {
namespace {

enum class Fate { kKept, kBySegment, kAtUse };

class Recompute {
 public:
  Recompute(Builder& builder, size_t border) : b_(builder), spec_(builder.spec()), plan_(spec_.plan) {
    forward_ = std::exchange(b_.ops(), {});
    const auto first = forward_.begin() + static_cast<std::ptrdiff_t>(border);
    backward_.assign(std::make_move_iterator(first), std::make_move_iterator(forward_.end()));
    forward_.resize(border);
    producer_.assign(b_.values().size(), -1);
    home_.assign(b_.values().size(), Scope{});
    for (size_t v = 0; v < b_.values().size(); ++v) home_[v] = b_.values()[v].scope;
    for (size_t i = 0; i < forward_.size(); ++i)
      for (const ValueId id : forward_[i].out)
        if (id != kNoValue) producer_[static_cast<size_t>(id)] = static_cast<int>(i);
    find_homes();
    find_far_values();
    for (size_t l = 0; l < plan_.blocks.size(); ++l) again_.push_back(plan_.needs_recompute(l));
  }

  void run() {
    size_t begun = plan_.blocks.size();  // blocks from here on have begun their backward pass
    for (size_t i = 0; i < backward_.size(); ++i) {
      Op& op = backward_[i];
      const bool is_in_block = op.scope.block >= 0;
      if (is_in_block && index(op.scope) < begun) {
        const size_t begin = plan_.segment_begin(index(op.scope));
        if (plan_.segment_end(begin) == index(op.scope) + 1) make_segment(begin, i);
        begun = index(op.scope);
      }
      for (ValueId& id : op.in) {
        if (id == kNoValue || fate(id) == Fate::kKept) continue;
        if (!made_.contains(id)) make_at_use(id, made_, Cause::kAgain);
        id = made_.at(id);
      }
      b_.ops().push_back(std::move(op));
    }
    b_.prepend(std::move(forward_));
  }

 private:
  using Made = std::map<ValueId, ValueId>;  // from a value of forward to the one that was made again

  size_t index(const Scope& scope) const { return static_cast<size_t>(scope.block - spec_.first_block); }

  // The residual stream belongs to the half that reads it first.
  void find_homes() {
    for (size_t i = forward_.size(); i-- > 0;) {
      const Op& op = forward_[i];
      for (const ValueId id : op.in)
        if (id != kNoValue && b_[id].role == Role::kStream &&
            producer_[static_cast<size_t>(id)] < static_cast<int>(i))
          home_[static_cast<size_t>(id)] = op.scope;
      // A norm that also adds writes the stream itself.
      if (is_norm(op) && op.scope.half != Half::kNone && sum_of(op) != kNoValue)
        home_[static_cast<size_t>(sum_of(op))] = op.scope;
    }
  }

  // A value that several other blocks read serves too long to be made again for one of them.
  void find_far_values() {
    is_far_.assign(b_.values().size(), false);
    std::vector<int> reader(b_.values().size(), -1);  // the first other block
    for (const Op& op : forward_)
      for (const ValueId id : op.in) {
        if (id == kNoValue || op.scope.block < 0 || op.scope.block == b_[id].scope.block) continue;
        int& first = reader[static_cast<size_t>(id)];
        if (first < 0) first = op.scope.block;
        if (first != op.scope.block) is_far_[static_cast<size_t>(id)] = true;
      }
  }

  Fate fate_of(Storage place, bool is_again) const {
    if (place == Storage::kNone) return Fate::kAtUse;
    return place == Storage::kShared && is_again ? Fate::kBySegment : Fate::kKept;
  }
  // The fate of a value of the forward pass that backward reads.
  Fate fate(ValueId id) const {
    if (static_cast<size_t>(id) >= producer_.size() || producer_[static_cast<size_t>(id)] < 0)
      return Fate::kKept;
    if (is_far_[static_cast<size_t>(id)]) return Fate::kKept;
    const Value& v = b_[id];
    const Scope& home = home_[static_cast<size_t>(id)];
    if (v.role == Role::kAllRows) return Fate::kAtUse;
    if (v.role == Role::kStatistic || v.role == Role::kNormInput || v.role == Role::kResult)
      return Fate::kKept;
    if (v.scope.unit == 0) return plan_.keeps_embedding ? Fate::kKept : Fate::kBySegment;
    if (home.half == Half::kNone) return Fate::kKept;
    const size_t l = index(home);
    const BlockPlan& block = plan_.blocks[l];
    const RecomputePlan::NeedsRecompute& again = again_[l];
    if (home.half == Half::kAttention) {
      if (v.role == Role::kStream) return fate_of(block.attention.x, l > 0 && again_[l - 1].pre);
      if (v.role == Role::kNormalised) return fate_of(block.attention.h, again.heads);
      return fate_of(block.attention.heads, again.heads);
    }
    if (v.role == Role::kStream) return fate_of(block.mlp.x, again.residual);
    if (v.role == Role::kNormalised) return fate_of(block.mlp.h, again.pre);
    if (v.role == Role::kActivated) return fate_of(block.mlp.act, again.pre);
    return fate_of(block.mlp.pre, again.pre);
  }

  const Op& producer(ValueId id) const {
    return forward_[static_cast<size_t>(producer_[static_cast<size_t>(id)])];
  }

  // Returns the operation that makes a value again.
  Op again(ValueId id) const {
    const Op& op = producer(id);
    return op.primitive->again(
        op, [&](ValueId out) { return out != id && (fate(out) == Fate::kKept || made_.contains(out)); });
  }

  // Appends the operation with new outputs, except for those that are kept.
  void append(Op op, Made& made, Cause cause) {
    b_.enter(op.scope, "");
    op.cause = cause;
    for (ValueId& id : op.in)
      if (id != kNoValue && made.contains(id)) id = made.at(id);
    for (ValueId& id : op.out) {
      if (id == kNoValue || fate(id) == Fate::kKept) continue;
      const ValueId again = b_.like(id, b_[id].name + " again");
      made[id] = again;
      id = again;
    }
    b_.ops().push_back(std::move(op));
  }

  void make_at_use(ValueId id, Made& made, Cause cause) {
    const Op op = again(id);
    for (const ValueId in : op.in)
      if (in != kNoValue && fate(in) != Fate::kKept && !made.contains(in)) make_at_use(in, made, cause);
    append(op, made, cause);
  }

  // Adds the operations of forward that make a value, and those that make what they read.
  void need(ValueId id, std::set<size_t>& needed, std::set<ValueId>& seen) const {
    if (id == kNoValue || fate(id) == Fate::kKept || made_.contains(id)) return;
    if (!seen.insert(id).second) return;
    if (fate(id) != Fate::kAtUse) needed.insert(static_cast<size_t>(producer_[static_cast<size_t>(id)]));
    for (const ValueId in : again(id).in) need(in, needed, seen);
  }

  // begin: the segment's first block; first: where the backward pass of its last block begins.
  void make_segment(size_t begin, size_t first) {
    std::set<size_t> needed;
    std::set<ValueId> seen;
    for (size_t i = first; i < backward_.size(); ++i) {
      const Op& op = backward_[i];
      if (op.scope.block < 0 || index(op.scope) < begin) break;
      for (const ValueId id : op.in) need(id, needed, seen);
    }
    Made made;  // values that are made at use serve this segment alone
    for (const size_t i : needed) {
      const Op& op = forward_[i];
      const ValueId wanted = first_by_segment(op);
      const Op again_op = again(wanted);
      for (const ValueId in : again_op.in)
        if (in != kNoValue && fate(in) == Fate::kAtUse && !made.contains(in))
          make_at_use(in, made, Cause::kRecompute);
      append(again_op, made, Cause::kRecompute);
    }
    for (const auto& [id, value] : made)
      if (fate(id) == Fate::kBySegment) made_[id] = value;
  }
  ValueId first_by_segment(const Op& op) const {
    for (const ValueId id : op.out)
      if (id != kNoValue && fate(id) == Fate::kBySegment) return id;
    return kNoValue;
  }

  Builder& b_;
  const BuildSpec& spec_;
  const RecomputePlan& plan_;
  std::vector<Op> forward_, backward_;
  std::vector<int> producer_;  // by value: index of the operation of forward that writes it; -1: none
  std::vector<Scope> home_;    // by value
  std::vector<bool> is_far_;   // by value: it is kept whatever the plan says
  std::vector<RecomputePlan::NeedsRecompute> again_;  // by block
  Made made_;
};

}  // namespace

void recompute(Builder& builder, size_t border) { Recompute(builder, border).run(); }

}  // namespace ingot
