#include "ingot/nn/primitives/elementwise.h"

#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/program/check.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/residual_add.h"

namespace ingot {
namespace {

class Add final : public Primitive {
 public:
  std::string name() const override { return "add"; }
  void run(const Operands& t) const override { residual_add(t.out(0), t.in(0), t.in(1), t.ctx.stream); }
  void check(const PlacedOp& p) const override {  // two terms of sums add up to one
    p.expect_in(1, p.in(0));
    p.expect_out(0, p.in(0));
  }
  void backward(BackwardRule& rule) const override {
    const ValueId d = rule.d(0);
    rule.give(0, d);
    rule.give(1, d);
  }
};

class Dropout final : public Primitive {
 public:
  Dropout(uint32_t site, int64_t first_row) : site_(site), first_row_(first_row) {}
  std::string name() const override { return "dropout"; }
  void run(const Operands& t) const override {
    const DropoutState& state = t.ctx.dropout;
    const Tensor x = t.in(0);
    dropout(t.out(0), x, state.p, dropout_key(state, site_),
            static_cast<uint64_t>((state.first_row + first_row_) * x.dim(1)), t.ctx.stream, state.place);
  }
  void backward(BackwardRule& rule) const override {
    const ValueId d = rule.d(0), dx = rule.gradient_like(rule.op.in[0]);
    rule.b.add(std::make_shared<Dropout>(site_, first_row_), {d}, {dx}).in_place = {{0, 0, false}};
    rule.give(0, dx);
  }

 private:
  uint32_t site_;
  int64_t first_row_;
};

class ActivationBackward final : public Primitive {
 public:
  explicit ActivationBackward(Activation kind) : kind_(kind) {}
  std::string name() const override { return "activation_backward"; }
  void scratch(const DescribedOp& op, Arena& arena) const override { alloc_sums(arena, op.out(0).shape[1]); }
  void run(const Operands& t) const override {
    const Tensor d_pre = t.out(0);
    activation_backward({.dx = d_pre,
                         .dbias = t.gradient(0),
                         .dy = t.in(0),
                         .x = t.in(1),
                         .bias = t.weight(0),
                         .kind = kind_,
                         .scratch = alloc_sums(t.ctx.scratch, d_pre.dim(1))},
                        t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.expect_alike(1);
    p.expect_vector(0, p.in(0));
    p.contributes_column_sums(0);
  }
  bool raises_amax(size_t /*out*/) const override { return true; }

 private:
  Activation kind_;
};

class Activate final : public Primitive {
 public:
  explicit Activate(Activation kind) : kind_(kind) {}
  Activation kind() const { return kind_; }
  std::string name() const override { return "activation"; }
  void run(const Operands& t) const override {
    activation_forward(t.out(0), t.in(0), t.weight(0), kind_, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.expect_alike(1);
    p.expect_vector(0, p.in(0));
  }
  void backward(BackwardRule& rule) const override {
    const ValueId d_pre = rule.gradient_like(rule.op.in[0]);
    Op& op = rule.b.add(std::make_shared<ActivationBackward>(kind_), {rule.d(0), rule.op.in[0]}, {d_pre});
    op.weights = op.gradients = rule.op.weights;
    rule.give(0, d_pre);
  }
  bool raises_amax(size_t /*out*/) const override { return true; }

 private:
  Activation kind_;
};

class SwigluBackward final : public Primitive {
 public:
  std::string name() const override { return "swiglu_backward"; }
  void run(const Operands& t) const override { swiglu_backward(t.out(0), t.in(0), t.in(1), t.ctx.stream); }
  bool raises_amax(size_t /*out*/) const override { return true; }
};

class Swiglu final : public Primitive {
 public:
  std::string name() const override { return "swiglu"; }
  void run(const Operands& t) const override { swiglu_forward(t.out(0), t.in(0), t.ctx.stream); }
  void backward(BackwardRule& rule) const override {
    const ValueId d = rule.gradient_like(rule.op.in[0]);
    rule.b.add(std::make_shared<SwigluBackward>(), {rule.d(0), rule.op.in[0]}, {d});
    rule.give(0, d);
  }
  bool raises_amax(size_t /*out*/) const override { return true; }
};

}  // namespace

ValueId add(Builder& b, ValueId x, ValueId y) {
  b.require(x, b[y].placement, b[y].placement, "add");
  b.require(x, Placement::kWhole, Placement::kTokens, "add");
  const ValueId sum = b.value("sum", b[x].dtype, b[x].shape, b[x].placement, Role::kStream);
  b.add(std::make_shared<Add>(), {x, y}, {sum});
  return sum;
}

bool is_add(const Op& op) { return dynamic_cast<const Add*>(op.primitive.get()) != nullptr; }

ValueId add_gradients(Builder& b, ValueId first, ValueId second) {
  first = b[second].placement == Placement::kPartial ? first : enter_backward(b, first, b[second].placement);
  second = b[first].placement == Placement::kPartial ? second : enter_backward(b, second, b[first].placement);
  const ValueId sum = b.like(first, b[first].name);
  b.add(std::make_shared<Add>(), {first, second}, {sum}).in_place = {{0, 0, false}};
  return sum;
}

ValueId dropout(Builder& b, ValueId x, uint32_t site) {
  if (!b.spec().has_dropout) return x;
  b.require(x, Placement::kWhole, Placement::kTokens, "dropout");
  const ValueId y = b.like(x, "dropped");
  const int64_t first_row = b.spec().tp.first_row(b.spec().tokens());
  b.add(std::make_shared<Dropout>(site, first_row), {x}, {y}).in_place = {{0, 0, true}};
  return y;
}

ValueId activate(Builder& b, ValueId pre, Activation kind, int bias) {
  b.require(pre, Placement::kWhole, Placement::kColumns, "activation");
  const ValueId act = b.value("act", b[pre].dtype, b[pre].shape, b[pre].placement, Role::kActivated);
  b.add(std::make_shared<Activate>(kind), {pre}, {act}).weights = {bias};
  return act;
}

ValueId swiglu(Builder& b, ValueId gate_up) {
  b.require(gate_up, Placement::kWhole, Placement::kColumns, "swiglu");
  const Value from = b[gate_up];
  const ValueId act =
      b.value("act", from.dtype, {from.shape[0], from.shape[1] / 2}, from.placement, Role::kActivated);
  b.add(std::make_shared<Swiglu>(), {gate_up}, {act});
  return act;
}

Op gelu_of(ValueId act, ValueId pre, const Op& like) {
  Op op{.primitive = std::make_shared<Activate>(Activation::kGeluTanh), .in = {pre}, .out = {act}};
  op.weights = {-1};
  op.scope = like.scope;
  return op;
}

int fusible_gelu_bias(const Op& op) {
  const auto* activation = dynamic_cast<const Activate*>(op.primitive.get());
  return activation && activation->kind() == Activation::kGeluTanh ? op.weights[0] : -1;
}

}  // namespace ingot
