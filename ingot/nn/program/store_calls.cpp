#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/nn/program/passes.h"

namespace ingot {
namespace {

// Calls one function of the store for a unit.
class StoreCall final : public Primitive {
 public:
  using Call = void (ParamStore::*)(int unit);
  StoreCall(std::string name, Call call, int unit) : name_(std::move(name)), call_(call), unit_(unit) {}
  std::string name() const override { return name_; }
  void run(const Operands& t) const override { (t.ctx.params.*call_)(unit_); }

 private:
  std::string name_;
  Call call_;
  int unit_;
};

std::shared_ptr<const Primitive> prefetch_weights(int unit) {
  return std::make_shared<StoreCall>("prefetch", &ParamStore::prefetch, unit);
}
std::shared_ptr<const Primitive> wait_weights(int unit) {
  return std::make_shared<StoreCall>("wait_weights", &ParamStore::wait_weights, unit);
}
// The gradients of the unit are those of the micro-batch.
std::shared_ptr<const Primitive> start_reduction(int unit) {
  return std::make_shared<StoreCall>("start_reduction", &ParamStore::start_reduction, unit);
}

// Opens a unit's gradients for one section of a pass. What is old is overwritten by the products of the
// section, if it has those of all the unit's overwritten parameters, and is zeroed here otherwise.
class OpenGradients final : public Primitive {
 public:
  OpenGradients(int unit, bool has_products) : unit_(unit), has_products_(has_products) {}
  std::string name() const override { return "open_gradients"; }
  void run(const Operands& t) const override {
    ParamStore& params = t.ctx.params;
    const OldGradients old = params.open_gradients(unit_);
    t.ctx.overwrites_gradients = has_products_ && old != OldGradients::kNone;
    if (old == OldGradients::kNone) return;
    const std::vector<ParamSpec>& specs = params.held().specs();
    for (size_t p = 0; p < specs.size(); ++p) {
      const bool is_zeroed = specs[p].is_overwritten ? !has_products_ : old == OldGradients::kAll;
      if (specs[p].unit == unit_ && specs[p].is_trained && is_zeroed)
        fill_zero(params.grad(static_cast<int>(p)), t.ctx.stream);
    }
  }

 private:
  int unit_;
  bool has_products_;
};

class StoreCalls {
 public:
  StoreCalls(Builder& builder, size_t border, const ParamList& params, UnitRange units)
      : b_(builder), border_(border), params_(params), units_(units), old_(std::move(builder.ops())) {
    b_.ops().clear();
  }

  // Returns where the backward pass begins.
  size_t run() {
    b_.set_cause(Cause::kForward);
    prefetch(units_.first, -1);
    if (units_.first == 0 && units_.end > 1) prefetch(1, -1);
    int block = -1;
    for (size_t i = 0; i < border_; ++i) {
      const int next = old_[i].scope.block;
      if (next >= 0 && next != block && next + 2 < units_.end) prefetch(next + 2, -1);
      block = next;
      keep(i, block);
    }
    const size_t begin = b_.ops().size();
    if (border_ < old_.size()) backward();
    return begin;
  }

 private:
  void backward() {
    b_.set_cause(Cause::kBackward);
    end_.assign(static_cast<size_t>(units_.end), border_);
    for (size_t i = border_; i < old_.size(); ++i)
      if (old_[i].cause == Cause::kBackward) end_[static_cast<size_t>(old_[i].scope.unit)] = i + 1;
    opened_ = -1;
    awaited_.clear();
    reduce_what_forward_finished();
    int unit = units_.end - 1;
    begin(unit);
    for (size_t i = border_; i < old_.size(); ++i) {
      keep(i, block_);
      for (; unit >= units_.first && i + 1 >= end_[static_cast<size_t>(unit)]; begin(--unit))
        if (opened_ == unit) add(start_reduction(unit), unit, block_);
    }
  }
  // The head's forward has added to its table, maybe long ago. The table's unit may have no gradients in
  // backward: that of a head whose norm has no weight, or the embedding's where it is on another stage.
  void reduce_what_forward_finished() {
    std::set<int> finished;
    for (const Op& op : b_.ops())
      for (const int id : op.gradients)
        if (id >= 0) finished.insert(params_[id].unit);
    for (size_t i = border_; i < old_.size(); ++i)
      for (const int id : old_[i].gradients)
        if (id >= 0) finished.erase(params_[id].unit);
    for (const int unit : finished) {
      add(std::make_shared<OpenGradients>(unit, false), unit, -1);
      add(start_reduction(unit), unit, -1);
    }
  }
  // The backward pass of a unit begins. Its blocks are all units but the ends of the model.
  void begin(int unit) {
    const bool is_block = unit > 0 && unit >= units_.first && !(unit == units_.end - 1 && has_head());
    block_ = is_block ? unit - 1 : -1;
    if (is_block && unit > units_.first && end_[static_cast<size_t>(unit - 1)] > border_)
      prefetch(unit - 1, block_);
  }
  bool has_head() const {
    return std::ranges::any_of(old_, [&](const Op& op) { return op.scope.unit > 0 && op.scope.block < 0; });
  }
  void keep(size_t i, int block) {
    for (const int id : old_[i].weights)
      if (id >= 0) await(params_[id].unit, block);
    for (const int id : old_[i].gradients)
      if (id >= 0 && params_[id].unit != opened_) {
        opened_ = params_[id].unit;
        // Outside blocks, backward has the norm before the head, whose product is in forward, and the
        // embedding, which adds.
        add(std::make_shared<OpenGradients>(opened_, i < border_ || old_[i].scope.block >= 0), opened_,
            block);
      }
    old_[i].block = block;
    b_.ops().push_back(std::move(old_[i]));
  }
  // The weights of one block may take the memory of another's.
  void await(int unit, int block) {
    if (awaited_.contains(unit)) return;
    const auto is_block = [&](int other) { return other > 0 && other + 1 < params_.units(); };
    if (is_block(unit)) std::erase_if(awaited_, is_block);
    awaited_.insert(unit);
    add(wait_weights(unit), unit, block);
  }
  void prefetch(int unit, int block) { add(prefetch_weights(unit), unit, block); }
  void add(std::shared_ptr<const Primitive> primitive, int unit, int block) {
    Op& op = b_.add(std::move(primitive), {}, {});
    op.scope = {.unit = unit};
    op.block = block;
  }

  Builder& b_;
  size_t border_;
  const ParamList& params_;
  UnitRange units_;
  std::vector<Op> old_;
  std::vector<size_t> end_;  // by unit: behind its last operation in backward; border_ if it has none
  std::set<int> awaited_;    // units whose weights are there in this section
  int opened_ = -1;          // the unit whose gradients are open in this section
  int block_ = -1;           // the block whose backward pass has begun; -1: none
};

}  // namespace

size_t call_store(Builder& builder, size_t border, const ParamList& params, UnitRange units) {
  return StoreCalls(builder, border, params, units).run();
}

}  // namespace ingot
