#include "ingot/nn/primitives/message.h"

#include "ingot/core/copy.h"
#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/program/check.h"

namespace ingot {
namespace {

// Calls f with each tensor's part of the message.
template <typename F>
void for_each_part(const Tensor& message, size_t count, const std::function<Tensor(size_t)>& tensor, F&& f) {
  int64_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const Tensor t = tensor(i);
    f(t, message.rows(begin, begin + t.elements()).reshape(t.shape));
    begin += t.elements();
  }
}

// No value of a message is a term of a sum.
void refuse_terms(const PlacedOp& p) {
  for (size_t i = 0; i < p.op.in.size(); ++i) p.refuse(i, Placement::kPartial);
  for (size_t i = 0; i < p.op.out.size(); ++i) p.refuse_term(i);
}

class Pack final : public Primitive {
 public:
  std::string name() const override { return "pack"; }
  void run(const Operands& t) const override {
    for_each_part(
        t.out(0), t.op.in.size(), [&](size_t i) { return t.in(i); },
        [&](const Tensor& value, const Tensor& part) { copy(part, value, t.ctx.stream); });
  }
  void check(const PlacedOp& p) const override { refuse_terms(p); }
  void backward(BackwardRule& rule) const override;
};

class Unpack final : public Primitive {
 public:
  std::string name() const override { return "unpack"; }
  void run(const Operands& t) const override {
    for_each_part(
        t.in(0), t.op.out.size(), [&](size_t i) { return t.out(i); },
        [&](const Tensor& value, const Tensor& part) { copy(value, part, t.ctx.stream); });
  }
  void check(const PlacedOp& p) const override { refuse_terms(p); }
  void backward(BackwardRule& rule) const override {
    std::vector<ValueId> gradients;
    for (size_t i = 0; i < rule.op.out.size(); ++i) {
      const ValueId d = rule.d(i);
      gradients.push_back(d != kNoValue ? d : zeros(rule.b, rule.gradient_like(rule.op.out[i])));
    }
    rule.give(0, pack(rule.b, gradients, "d input"));
  }
};

void Pack::backward(BackwardRule& rule) const {
  std::vector<ValueId> gradients;
  for (const ValueId in : rule.op.in) gradients.push_back(rule.gradient_like(in));
  rule.b.add(std::make_shared<Unpack>(), {rule.d(0)}, gradients);
  for (size_t i = 0; i < gradients.size(); ++i) rule.give(i, gradients[i]);
}

}  // namespace

int64_t message_elements(const std::vector<Packed>& values) {
  int64_t elements = 0;
  for (const Packed& value : values) elements += value.shape.elements();
  return elements;
}

ValueId pack(Builder& b, const std::vector<ValueId>& values, std::string name) {
  int64_t elements = 0;
  for (const ValueId id : values) elements += b[id].shape.elements();
  const ValueId message = b.value(std::move(name), b.spec().compute, {elements}, Placement::kWhole);
  b.add(std::make_shared<Pack>(), values, {message});
  return message;
}

std::vector<ValueId> unpack(Builder& b, ValueId message, const std::vector<Packed>& values) {
  std::vector<ValueId> ids;
  for (const Packed& value : values)
    ids.push_back(b.value(value.name, b.spec().compute, value.shape, value.placement));
  b.add(std::make_shared<Unpack>(), {message}, ids);
  return ids;
}

}  // namespace ingot
