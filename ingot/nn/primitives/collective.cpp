#include "ingot/nn/primitives/collective.h"

#include "ingot/core/copy.h"
#include "ingot/nn/program/check.h"
#include "ingot/ops/accumulate.h"

namespace ingot {
namespace {

// all = the rows h of all ranks.
class GatherRows final : public Primitive {
 public:
  explicit GatherRows(bool is_backward) : is_backward_(is_backward) {}
  std::string name() const override { return is_backward_ ? "leave_backward" : "enter"; }
  void run(const Operands& t) const override {
    if (is_backward_)
      t.ctx.region.leave_backward(t.out(0), t.in(0), t.ctx.stream);
    else
      t.ctx.region.enter(t.out(0), t.in(0), t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.expect_in(0, Placement::kTokens);
    p.expect_out(0, Placement::kWhole);
  }
  void backward(BackwardRule& rule) const override {
    rule.give(0, enter_backward(rule.b, rule.d_or_term(0), rule.b[rule.op.in[0]].placement));
  }

 private:
  bool is_backward_;
};

// out = the sum of the ranks' terms, or this rank's rows of it.
class SumTerms final : public Primitive {
 public:
  explicit SumTerms(bool is_backward) : is_backward_(is_backward) {}
  std::string name() const override { return is_backward_ ? "enter_backward" : "leave"; }
  void run(const Operands& t) const override {
    if (is_backward_)
      t.ctx.region.enter_backward(t.out(0), t.in(0), t.ctx.stream);
    else
      t.ctx.region.leave(t.out(0), t.in(0), t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.expect_in(0, Placement::kPartial);
    p.refuse_term(0);
  }
  void backward(BackwardRule& rule) const override {
    const ValueId d = rule.d(0);
    if (rule.b[d].placement == Placement::kWhole) return rule.give(0, d);
    const ValueId all = rule.gradient_like(rule.op.in[0], Placement::kWhole);
    rule.b.add(std::make_shared<GatherRows>(true), {d}, {all});
    rule.give(0, all);
  }

 private:
  bool is_backward_;
};

ValueId sum_terms(Builder& b, ValueId term, Placement to, bool is_backward) {
  const Value from = b[term];
  Shape shape = from.shape;
  if (to == Placement::kTokens) shape[0] /= b.spec().tp.count;
  const ValueId sum = b.value(is_backward ? from.name : "sum", from.dtype, shape, to);
  Op& op = b.add(std::make_shared<SumTerms>(is_backward), {term}, {sum});
  if (to == Placement::kWhole) op.in_place = {{0, 0, true}};
  return sum;
}

class Zero final : public Primitive {
 public:
  std::string name() const override { return "zero"; }
  void run(const Operands& t) const override { fill_zero(t.out(0), t.ctx.stream); }
  void check(const PlacedOp& /*p*/) const override {}  // zeros are a term of any sum
};

// The gradient of a parameter += the sum of the ranks' terms.
class AddPartialGradient final : public Primitive {
 public:
  std::string name() const override { return "add_partial_gradient"; }
  void run(const Operands& t) const override {
    t.ctx.region.sum("partial gradient", t.in(0), t.ctx.stream);
    const Tensor sum = t.in(0);
    accumulate(t.gradient(0).reshape(sum.shape), sum, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.expect_in(0, Placement::kPartial);
    p.contributes(0, Contribution::kWhole);
  }
};

}  // namespace

ValueId gather_rows(Builder& b, ValueId x) {
  if (b[x].placement != Placement::kTokens) return x;
  const Value from = b[x];
  const ValueId all =
      b.value("all", from.dtype, {b.spec().tokens(), from.shape[1]}, Placement::kWhole, Role::kAllRows);
  b.add(std::make_shared<GatherRows>(false), {x}, {all});
  return all;
}

ValueId sum_to_stream(Builder& b, ValueId x) {
  if (b[x].placement != Placement::kPartial) return x;
  const int64_t N = b.spec().tokens();
  return sum_terms(b, x, b.spec().tp.rows(N) < N ? Placement::kTokens : Placement::kWhole, false);
}

ValueId enter_backward(Builder& b, ValueId term, Placement to) {
  if (b[term].placement != Placement::kPartial) return term;
  return sum_terms(b, term, to, true);
}

ValueId zeros(Builder& b, ValueId value) {
  b.add(std::make_shared<Zero>(), {}, {value});
  return value;
}

PartialGradient::PartialGradient(Builder& b, int param, int64_t elements, bool is_partial)
    : b_(b), param_(b.spec().trains(param) ? param : -1) {
  if (param_ < 0 || !is_partial) return;
  value_ = zeros(b, b.value("partial", DType::f32, {elements}, Placement::kPartial));
}

void PartialGradient::finish() {
  if (value_ != kNoValue) b_.add(std::make_shared<AddPartialGradient>(), {value_}, {}).gradients = {param_};
}

}  // namespace ingot
