#include "ingot/nn/primitives/mix.h"

#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/program/check.h"
#include "ingot/ops/mix.h"
#include "ingot/ops/row_sum.h"

namespace ingot {
namespace {

Tensor alloc_parts(Arena& arena) { return arena.alloc(DType::f32, {2, row_sum_parts(arena.device())}); }

// The values in a buffer of queries, keys and values, or in its gradient.
Tensor values_of(const Tensor& qkv, const HeadsSpec& s) {
  return qkv.columns((s.H + s.K) * s.D, s.qkv_width());
}

// A factor's gradient is summed over all that the operation reads, of which ranks have parts.
void check_factors(const PlacedOp& p, size_t first_out) {
  const bool is_term = p.in(0) != Placement::kWhole;
  for (const size_t i : {0u, 1u}) {
    if (p.has_out(first_out + i)) p.expect_term_of(p.in(0), first_out + i);
    p.contributes(i, is_term ? Contribution::kTerm : Contribution::kWhole);
  }
}

// The factors' gradients while their rule adds an operation.
struct FactorGradients {
  FactorGradients(Builder& b, const std::vector<int>& factors, bool is_partial)
      : a(b, factors[0], 1, is_partial), b(b, factors[1], 1, is_partial) {}
  void finish() {
    a.finish();
    b.finish();
  }
  PartialGradient a, b;
};

// in: dy, x, z, the last two as far as their factors are learned; out: dx unless it is dy, dz, the rank's
// terms of the factors' gradients.
class MixBackward final : public Primitive {
 public:
  std::string name() const override { return "mix_backward"; }
  void scratch(const DescribedOp& /*op*/, Arena& arena) const override { alloc_parts(arena); }
  void run(const Operands& t) const override {
    mix_backward({.x = t.out(0),
                  .z = t.out(1),
                  .a = t.out(2) ? t.out(2) : t.gradient(0),
                  .b = t.out(3) ? t.out(3) : t.gradient(1)},
                 t.in(0), {.x = t.in(1), .z = t.in(2), .a = t.weight(0), .b = t.weight(1)},
                 alloc_parts(t.ctx.scratch), t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.expect_alike(2);
    check_factors(p, 2);
  }
};

class Mix final : public Primitive {
 public:
  std::string name() const override { return "mix"; }
  void run(const Operands& t) const override {
    mix_forward(t.out(0), {.x = t.in(0), .z = t.in(1), .a = t.weight(0), .b = t.weight(1)}, t.ctx.stream);
  }
  void backward(BackwardRule& rule) const override {
    Builder& b = rule.b;
    const Op& op = rule.op;
    const ValueId dy = rule.d(0);
    const int a = op.weights[0];
    FactorGradients factors(b, op.weights, b[dy].placement == Placement::kTokens);
    const ValueId dx = a < 0 ? kNoValue : rule.gradient_like(op.in[0]), dz = rule.gradient_like(op.in[1]);
    Op& made = b.add(std::make_shared<MixBackward>(), {dy, a < 0 ? kNoValue : op.in[0], op.in[1]},
                     {dx, dz, factors.a.value(), factors.b.value()});
    made.weights = op.weights;
    made.gradients = {factors.a.direct(), factors.b.direct()};
    if (a >= 0) made.in_place = {{0, 0, false}};
    factors.finish();
    rule.give(0, a < 0 ? dy : dx);
    rule.give(1, dz);
  }
};

// in: the gradient of qkv, the values as they were, z; out: the gradient, that of z, the rank's terms of the
// factors' gradients.
class MixValuesBackward final : public Primitive {
 public:
  explicit MixValuesBackward(const HeadsSpec& heads) : heads_(heads) {}
  std::string name() const override { return "mix_values_backward"; }
  void scratch(const DescribedOp& /*op*/, Arena& arena) const override { alloc_parts(arena); }
  void run(const Operands& t) const override {
    const Tensor d = values_of(t.out(0), heads_);
    mix_backward({.x = d,
                  .z = t.out(1),
                  .a = t.out(2) ? t.out(2) : t.gradient(0),
                  .b = t.out(3) ? t.out(3) : t.gradient(1)},
                 d, {.x = t.in(1), .z = t.in(2), .a = t.weight(0), .b = t.weight(1)},
                 alloc_parts(t.ctx.scratch), t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.refuse(0, Placement::kTokens);
    p.expect_alike(2);
    check_factors(p, 2);
  }

 private:
  HeadsSpec heads_;
};

// in: qkv, z; out: qkv and, in training, the values as they were.
class MixValues final : public Primitive {
 public:
  explicit MixValues(const HeadsSpec& heads) : heads_(heads) {}
  std::string name() const override { return "mix_values"; }
  void run(const Operands& t) const override {
    const Tensor v = values_of(t.out(0), heads_), own = t.out(1);
    if (own) mix_forward(own, {.x = v, .z = {}, .a = {}, .b = {}}, t.ctx.stream);
    mix_forward(v, {.x = own ? own : v, .z = t.in(1), .a = t.weight(0), .b = t.weight(1)}, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.refuse(0, Placement::kTokens);
    p.expect_alike(p.op.out.size());
  }
  void backward(BackwardRule& rule) const override {
    Builder& b = rule.b;
    const Op& op = rule.op;
    const ValueId d = rule.d(0), z = op.in[1], dx = b.like(d, b[d].name);
    FactorGradients factors(b, op.weights, b[d].placement == Placement::kColumns);
    const ValueId dz = z == kNoValue ? kNoValue : rule.gradient_like(z);
    Op& made = b.add(std::make_shared<MixValuesBackward>(heads_), {d, op.out[1], z},
                     {dx, dz, factors.a.value(), factors.b.value()});
    made.weights = op.weights;
    made.gradients = {factors.a.direct(), factors.b.direct()};
    made.in_place = {{0, 0, true}};
    factors.finish();
    rule.give(0, dx);
    if (z != kNoValue) rule.give(1, dz);
  }

 private:
  HeadsSpec heads_;
};

}  // namespace

ValueId mix(Builder& b, ValueId x, ValueId z, const MixScalars& scalars) {
  b.require(x, b[z].placement, b[z].placement, "mix");
  b.require(x, Placement::kWhole, Placement::kTokens, "mix");
  // It costs as little to make again as a norm.
  const ValueId y = b.value("mix", b[x].dtype, b[x].shape, b[x].placement, Role::kNormalised);
  b.add(std::make_shared<Mix>(), {x, z}, {y}).weights = {scalars.a, scalars.b};
  return y;
}

ValueId mix_values(Builder& b, ValueId qkv, ValueId z, const MixScalars& scalars, const HeadsSpec& heads) {
  b.require(qkv, Placement::kWhole, Placement::kColumns, "mix_values");
  const ValueId mixed = b.like(qkv, "qkv");
  const Value from = b[qkv];
  const ValueId own = b.spec().is_training
                          ? b.value("values", from.dtype, {from.shape[0], heads.K * heads.D}, from.placement)
                          : kNoValue;
  Op& op = b.add(std::make_shared<MixValues>(heads), {qkv, z}, {mixed, own});
  op.weights = {scalars.a, scalars.b};
  op.in_place = {{0, 0, true}};
  return mixed;
}

}  // namespace ingot
