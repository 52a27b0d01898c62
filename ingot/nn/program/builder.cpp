#include "ingot/nn/program/builder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/primitives/elementwise.h"
#include "ingot/nn/program/passes.h"

namespace ingot {

const char* text_of(Placement placement) {
  switch (placement) {
    case Placement::kWhole:
      return "whole";
    case Placement::kTokens:
      return "split by tokens";
    case Placement::kColumns:
      return "split by columns";
    case Placement::kPartial:
      return "a sum that is still due";
  }
  return "";
}

void Builder::enter(const Scope& scope, std::string prefix) {
  scope_ = scope;
  prefix_ = std::move(prefix);
}

ValueId Builder::value(std::string name, DType dtype, const Shape& shape, Placement placement, Role role) {
  values_.push_back({.name = prefix_ + std::move(name),
                     .dtype = dtype,
                     .shape = shape,
                     .placement = placement,
                     .role = role,
                     .scope = scope_});
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId Builder::like(ValueId id, std::string name) {
  const Value from = (*this)[id];
  return value(std::move(name), from.dtype, from.shape, from.placement, from.role);
}

Op& Builder::add(std::shared_ptr<const Primitive> primitive, std::vector<ValueId> in,
                 std::vector<ValueId> out) {
  Op op{.primitive = std::move(primitive), .in = std::move(in), .out = std::move(out)};
  op.scope = scope_;
  op.cause = cause_;
  ops_.push_back(std::move(op));
  return ops_.back();
}

void Builder::prepend(std::vector<Op> ops) {
  ops.insert(ops.end(), std::make_move_iterator(ops_.begin()), std::make_move_iterator(ops_.end()));
  ops_ = std::move(ops);
}

void Builder::require(ValueId id, Placement a, Placement b, const char* what) const {
  const Value& v = (*this)[id];
  INGOT_CHECK(v.placement == a || v.placement == b, "{}: {} is {} over tp", what, v.name,
              text_of(v.placement));
}

ValueId Gradients::get(ValueId of) const {
  return static_cast<size_t>(of) < gradient_.size() ? gradient_[static_cast<size_t>(of)] : kNoValue;
}

void Gradients::set(ValueId of, ValueId gradient) {
  if (static_cast<size_t>(of) >= gradient_.size()) gradient_.resize(static_cast<size_t>(of) + 1, kNoValue);
  gradient_[static_cast<size_t>(of)] = gradient;
}

ValueId BackwardRule::d_or_term(size_t out) const {
  return out < op.out.size() && op.out[out] != kNoValue ? gradients_.get(op.out[out]) : kNoValue;
}

ValueId BackwardRule::d(size_t out) {
  const ValueId gradient = d_or_term(out);
  if (gradient == kNoValue || b[gradient].placement != Placement::kPartial) return gradient;
  return enter_backward(b, gradient, b[op.out[out]].placement);
}

ValueId BackwardRule::take(size_t in) {
  const ValueId gradient = gradients_.get(op.in[in]);
  gradients_.set(op.in[in], kNoValue);
  return gradient;
}

void BackwardRule::give_to(ValueId of, ValueId gradient) {
  const ValueId so_far = gradients_.get(of);
  gradients_.set(of, so_far == kNoValue ? gradient : add_gradients(b, so_far, gradient));
}

ValueId BackwardRule::gradient_like(ValueId of, Placement placement) {
  const Value from = b[of];
  return b.value("d " + from.name, from.dtype, from.shape, placement);
}

void drop_unused_gradients(Builder& builder, size_t border, ValueId result) {
  std::vector<bool> is_read(builder.values().size());
  if (result != kNoValue) is_read[static_cast<size_t>(result)] = true;
  std::vector<Op>& ops = builder.ops();
  for (size_t i = ops.size(); i-- > 0;) {
    Op& op = ops[i];
    for (int& id : op.gradients)
      if (!builder.spec().trains(id)) id = -1;
    if (i < border) continue;
    const bool is_used = std::ranges::any_of(op.gradients, [](int id) { return id >= 0; }) ||
                         std::ranges::any_of(op.out, [&](ValueId id) {
                           return id != kNoValue && is_read[static_cast<size_t>(id)];
                         });
    if (!is_used) {
      op.primitive = nullptr;
      continue;
    }
    for (const ValueId id : op.in)
      if (id != kNoValue) is_read[static_cast<size_t>(id)] = true;
  }
  std::erase_if(ops, [](const Op& op) { return !op.primitive; });
}

void differentiate(Builder& builder, Gradients& gradients) {
  std::vector<Op> forward = std::exchange(builder.ops(), {});
  std::vector<const Op*> producers(builder.values().size());
  for (const Op& op : forward)
    for (const ValueId id : op.out)
      if (id != kNoValue) producers[static_cast<size_t>(id)] = &op;
  builder.set_cause(Cause::kBackward);
  for (size_t i = forward.size(); i-- > 0;) {
    const Op& op = forward[i];
    const bool has_gradient = std::ranges::any_of(
        op.out, [&](ValueId id) { return id != kNoValue && gradients.get(id) != kNoValue; });
    if (!has_gradient) continue;
    builder.enter(op.scope, "");
    BackwardRule rule(builder, op, producers, gradients);
    op.primitive->backward(rule);
  }
  builder.prepend(std::move(forward));
}

}  // namespace ingot
