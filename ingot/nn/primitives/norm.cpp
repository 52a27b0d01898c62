#include "ingot/nn/primitives/norm.h"

#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/program/check.h"
#include "ingot/ops/norm.h"

namespace ingot {
namespace {

// A norm reads whole rows.
void check_rows(const PlacedOp& p, size_t outputs) {
  p.refuse(0, Placement::kColumns);
  p.expect_alike(outputs);
}

// in: dh, x, mean, rstd and the gradient that x has so far, which is added; out: the gradient of x and, of a
// norm whose parameters' gradients are sums over ranks, the rank's terms of these.
class NormBackward final : public Primitive {
 public:
  explicit NormBackward(const NormSpec& spec) : spec_(spec) {}
  std::string name() const override { return "norm_backward"; }
  void scratch(const DescribedOp& op, Arena& arena) const override { sums(arena, op.out(0).shape[1]); }
  void run(const Operands& t) const override {
    const NormBackwardOperands operands{.dx = t.out(0),
                                        .dw = t.out(1) ? t.out(1) : t.gradient(0),
                                        .db = t.out(2) ? t.out(2) : t.gradient(1),
                                        .dy = t.in(0),
                                        .x = t.in(1),
                                        .w = t.weight(0),
                                        .mean = t.in(2),
                                        .rstd = t.in(3),
                                        .d_residual = t.in(4),
                                        .scratch = sums(t.ctx.scratch, t.out(0).dim(1))};
    const auto run = spec_.kind == NormKind::kLayerNorm ? layernorm_backward : rmsnorm_backward;
    run(operands, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    check_rows(p, 1);
    for (const size_t i : {0u, 1u}) {
      p.expect_term_of(Placement::kTokens, i + 1);
      p.contributes_column_sums(i);
    }
  }
  bool raises_amax(size_t out) const override { return out == 0; }

 private:
  Tensor sums(Arena& arena, int64_t C) const {
    return alloc_sums(arena, spec_.kind == NormKind::kLayerNorm ? 2 * C : C);
  }
  NormSpec spec_;
};

// in: x, or x and delta; out: the norm, mean, rstd and the sum of x and delta.
class NormForward final : public Primitive {
 public:
  explicit NormForward(const NormSpec& spec) : spec_(spec) {}
  std::string name() const override { return "norm"; }
  void run(const Operands& t) const override {
    const NormOperands operands{.y = t.out(0),
                                .sum = t.out(3),
                                .mean = t.out(1),
                                .rstd = t.out(2),
                                .x = t.in(0),
                                .residual = t.in(1),
                                .w = t.weight(0),
                                .b = t.weight(1),
                                .eps = spec_.eps};
    const auto run = spec_.kind == NormKind::kLayerNorm ? layernorm_forward : rmsnorm_forward;
    run(operands, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override { check_rows(p, p.op.out.size()); }
  void backward(BackwardRule& rule) const override {
    const Op& op = rule.op;
    const ValueId sum = sum_of(op), x = sum == kNoValue ? op.in[0] : sum;
    const ValueId so_far = sum == kNoValue ? rule.take(0) : rule.d(3), dh = rule.d(0);
    const int64_t C = rule.b[x].shape[1];
    const bool is_partial = rule.b[x].placement == Placement::kTokens;
    PartialGradient dw(rule.b, spec_.weight, C, is_partial), db(rule.b, spec_.bias, C, is_partial);
    const ValueId dx = rule.gradient_like(x);
    Op& made = rule.b.add(std::make_shared<NormBackward>(spec_), {dh, x, op.out[1], op.out[2], so_far},
                          {dx, dw.value(), db.value()});
    made.weights = {spec_.weight};
    made.gradients = {dw.direct(), db.direct()};
    made.in_place = {{0, 4, false}, {0, 0, false}};
    dw.finish();
    db.finish();
    rule.give(0, dx);
    if (sum != kNoValue) rule.give(1, dx);
  }
  bool raises_amax(size_t out) const override { return out == 0; }
  // Without the statistics that are known, and as the norm of a sum that is known.
  Op again(const Op& op, const KnownValues& is_known) const override {
    Op made = op;
    for (const size_t i : {1u, 2u})
      if (op.out[i] != kNoValue && is_known(op.out[i])) made.out[i] = kNoValue;
    if (sum_of(op) == kNoValue || !is_known(sum_of(op))) return made;
    made.in = {sum_of(op)};
    made.out.pop_back();
    return made;
  }

 private:
  NormSpec spec_;
};

}  // namespace

NormSpec declare_norm(ParamList& params, int unit, const std::string& prefix, const ModelConfig& config) {
  NormSpec spec{.kind = config.norm, .eps = static_cast<float>(config.norm_eps)};
  if (spec.kind == NormKind::kRmsNormWeightless) return spec;
  spec.weight = params.add({.name = prefix + ".weight",
                            .shape = {config.width},
                            .role = ParamRole::kNorm,
                            .init = Init::kOne,
                            .unit = unit});
  if (spec.kind == NormKind::kLayerNorm && config.has_bias)
    spec.bias = params.add({.name = prefix + ".bias",
                            .shape = {config.width},
                            .role = ParamRole::kBias,
                            .init = Init::kZero,
                            .unit = unit});
  return spec;
}

ValueId norm(Builder& b, ValueId x, const NormSpec& spec) {
  b.require(x, Placement::kWhole, Placement::kTokens, "norm");
  const Value from = b[x];
  const ValueId h = b.value("norm", from.dtype, from.shape, from.placement, Role::kNormalised);
  const auto statistic = [&](const char* name) {
    return b.value(name, DType::f32, {from.shape[0]}, from.placement, Role::kStatistic);
  };
  const ValueId mean = spec.kind == NormKind::kLayerNorm ? statistic("mean") : kNoValue;
  b.add(std::make_shared<NormForward>(spec), {x}, {h, mean, statistic("rstd")}).weights = {spec.weight,
                                                                                           spec.bias};
  return h;
}

bool is_norm(const Op& op) { return dynamic_cast<const NormForward*>(op.primitive.get()) != nullptr; }

Op with_addition(const Op& norm, ValueId x, ValueId delta, ValueId sum) {
  Op both = norm;
  both.in = {x, delta};
  both.out.push_back(sum);
  return both;
}

ValueId sum_of(const Op& norm) { return norm.out.size() > 3 ? norm.out[3] : kNoValue; }

}  // namespace ingot
