#include "ingot/nn/primitives/linear.h"

#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/primitives/elementwise.h"
#include "ingot/nn/program/check.h"
#include "ingot/ops/activation.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/linear_fused.h"
#include "ingot/ops/matmul.h"

namespace ingot {
namespace {

// y = x · wᵀ and what is added to it. out: y, or several values that lie like it.
void check_product(const PlacedOp& p, size_t outputs) {
  const std::optional<Split> w = p.split(0);
  Placement y = p.in(0);
  if (w) {
    p.expect_in(0, *w == Split::kOutputs ? Placement::kWhole : Placement::kColumns);
    y = *w == Split::kOutputs ? Placement::kColumns : Placement::kPartial;
  }
  for (size_t i = 0; i < outputs; ++i) p.expect_out(i, y);
  p.expect_in(1, y);
  p.expect_vector(1, y);
  if (p.op.weights.size() > 1) p.refuse_term(0);
}

// dy · w, by the split of w.
void check_input_gradient(const PlacedOp& p, std::optional<Split> w) {
  if (!w) return p.expect_out(0, p.in(0));
  p.refuse(0, Placement::kPartial);
  p.expect_in(0, *w == Split::kOutputs ? Placement::kColumns : Placement::kWhole);
  p.expect_out(0, *w == Split::kOutputs ? Placement::kPartial : Placement::kColumns);
}

// dyᵀ · x: both are split by tokens, or one of them by columns, or none.
void check_weight_gradient(const PlacedOp& p) {
  const Placement dy = p.in(0), x = p.in(1);
  p.refuse(0, Placement::kPartial);
  if (dy == Placement::kTokens) {
    p.expect_in(1, Placement::kTokens);
    p.contributes(0, Contribution::kTerm);
  } else if (dy == Placement::kWhole && x == Placement::kColumns) {
    p.contributes(0, Contribution::kInputs);
  } else {
    p.expect_in(1, Placement::kWhole);
    p.contributes(0, dy == Placement::kColumns ? Contribution::kOutputs : Contribution::kWhole);
  }
}

// db += column sums of dy. in: dy; out: the rank's term of db, or nothing.
class BiasBackward final : public Primitive {
 public:
  std::string name() const override { return "bias_backward"; }
  void scratch(const DescribedOp& op, Arena& arena) const override { alloc_sums(arena, op.in(0).shape[1]); }
  void run(const Operands& t) const override {
    const Tensor dy = t.in(0);
    bias_backward(t.out(0) ? t.out(0) : t.gradient(0), dy, alloc_sums(t.ctx.scratch, dy.dim(1)),
                  t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.contributes_column_sums(0);
    p.expect_term_of(Placement::kTokens, 0);
  }
};

void add_bias_backward(Builder& b, ValueId dy, int bias) {
  PartialGradient db(b, bias, b[dy].shape[1], b[dy].placement == Placement::kTokens);
  Op& op = b.add(std::make_shared<BiasBackward>(), {dy}, {db.value()});
  op.gradients = {db.direct()};
  db.finish();
}

class Bias final : public Primitive {
 public:
  std::string name() const override { return "bias"; }
  void run(const Operands& t) const override { bias_forward(t.out(0), t.weight(0), t.ctx.stream); }
  void check(const PlacedOp& p) const override {
    p.expect_alike(1);
    p.expect_vector(0, p.in(0));
  }
  void backward(BackwardRule& rule) const override {
    const ValueId dy = rule.d(0);
    add_bias_backward(rule.b, dy, rule.op.weights[0]);
    rule.give(0, dy);
  }
};

// dw += scale dyᵀ · x and, with two gradients, db += column sums of dy. in: dy, x; out: the rank's term of
// dw, or nothing.
class WeightGradients final : public Primitive {
 public:
  explicit WeightGradients(float scale) : scale_(scale) {}
  std::string name() const override { return "weight_gradient"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    if (has_bias(op.op)) alloc_sums(arena, op.in(0).shape[1]);
  }
  void run(const Operands& t) const override {
    const Tensor dy = t.in(0), x = t.in(1), term = t.out(0);
    if (term)
      return scaled_matmul(term.reshape({dy.dim(1), x.dim(1)}), dy, x, MatmulForm::kTN, scale_, true,
                           t.ctx.stream);
    const WeightGradient dw = t.weight_gradient(0);
    if (scale_ != 1) return scaled_matmul(dw.dw, dy, x, MatmulForm::kTN, scale_, dw.adds, t.ctx.stream);
    if (!has_bias(t.op)) return matmul(dw.dw, dy, x, MatmulForm::kTN, dw.adds, t.ctx.stream);
    linear_weight_gradients(dw, t.gradient(1), dy, x, alloc_sums(t.ctx.scratch, dy.dim(1)), t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    if (p.has_out(0)) {  // one of dy and x is a term of a sum, and so is their product
      p.expect_out(0, Placement::kPartial);
      const size_t term = p.in(0) == Placement::kPartial ? 0 : 1;
      p.expect_in(term, Placement::kPartial);
      return p.expect_in(1 - term, Placement::kWhole);
    }
    check_weight_gradient(p);
    p.contributes_column_sums(1);
  }

 private:
  static bool has_bias(const Op& op) { return op.gradients.size() > 1; }
  float scale_;
};

// dx = scale dy · w.
class InputGradient final : public Primitive {
 public:
  explicit InputGradient(float scale) : scale_(scale) {}
  std::string name() const override { return "input_gradient"; }
  void run(const Operands& t) const override {
    if (scale_ != 1)
      return scaled_matmul(t.out(0), t.in(0), t.weight(0), MatmulForm::kNN, scale_, false, t.ctx.stream);
    matmul(t.out(0), t.in(0), t.weight(0), MatmulForm::kNN, false, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override { check_input_gradient(p, p.split(0)); }

 private:
  float scale_;
};

// d_pre = (dy · w) gelu'(pre). in: dy, pre.
class GeluInputGradient final : public Primitive {
 public:
  std::string name() const override { return "gelu_input_gradient"; }
  void run(const Operands& t) const override {
    linear_gelu_backward(t.out(0), t.in(0), t.weight(0), t.in(1), t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    check_input_gradient(p, p.split(0));
    p.expect_out(0, p.in(1));
  }
};

// dw += dyᵀ · x, unless w is frozen, and dx = dy · w with operands in FP8. in: dy, and x or the codes of it
// that forward left.
class Fp8Backward final : public Primitive {
 public:
  Fp8Backward(const LinearLayer& layer, bool has_codes) : layer_(layer), has_codes_(has_codes) {}
  const LinearLayer& layer() const { return layer_; }
  std::string name() const override { return "fp8_backward"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    layer_.fp8.plan_backward(arena, op.in(0).shape[0], layer_.out, layer_.in, is_trained(op.op));
  }
  void run(const Operands& t) const override {
    const Tensor dx = t.out(0), dy = t.in(0);
    if (!is_trained(t.op))
      return layer_.fp8.backward(dx, {.dw = {}}, dy, {}, {}, t.weight(0), Fp8Context::of(t.ctx));
    layer_.fp8.backward(dx, t.weight_gradient(0), dy, has_codes_ ? dx : t.in(1),
                        has_codes_ ? t.in(1) : Tensor{}, t.weight(0), Fp8Context::of(t.ctx));
  }
  void check(const PlacedOp& p) const override {
    if (is_trained(p.op)) check_weight_gradient(p);
    check_input_gradient(p, p.split(0));
  }

 private:
  static bool is_trained(const Op& op) { return op.in.size() > 1; }
  LinearLayer layer_;
  bool has_codes_;
};

// in: x, and what is added to the product; out: y, and the FP8 codes of x. weights: w, and the bias that is
// added.
class Product final : public Primitive {
 public:
  Product(const LinearLayer& layer, bool is_fp8) : layer_(layer), is_fp8_(is_fp8) {}
  const LinearLayer& layer() const { return layer_; }
  bool is_fp8() const { return is_fp8_; }
  std::string name() const override { return is_fp8_ ? "fp8_linear" : "linear"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    if (has_bias(op.op)) arena.alloc(op.out(0).dtype, {layer_.out});
    if (is_fp8_) layer_.fp8.plan_forward(arena, op.in(0).shape[0], layer_.out, layer_.in);
  }
  void run(const Operands& t) const override {
    const Tensor y = t.out(0), x = t.in(0), base = t.in(1);
    LinearTerms terms{.base = base};
    if (has_bias(t.op)) {
      terms.bias = t.weight(1);
      terms.rounded = t.ctx.scratch.alloc(y.dtype, {layer_.out});
    }
    if (is_fp8_) return layer_.fp8.forward(y, x, t.out(1), t.weight(0), terms, Fp8Context::of(t.ctx));
    if (layer_.scale != 1)
      return scaled_matmul(y, x, t.weight(0), MatmulForm::kNT, layer_.scale, false, t.ctx.stream);
    if (!has_bias(t.op) && !base) return multiply_by_weight(t.ctx, y, x, layer_.weight);
    linear_sum(y, x, t.weight(0), terms, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    check_product(p, 1);
    p.expect_out(1, p.in(0));  // the codes of x
  }
  void backward(BackwardRule& rule) const override;

  static bool has_bias(const Op& op) { return op.weights.size() > 1; }

 private:
  LinearLayer layer_;
  bool is_fp8_;
};

// act = gelu(pre), pre = x · wᵀ + b. in: x; out: act, pre.
class GeluProduct final : public Primitive {
 public:
  explicit GeluProduct(const LinearLayer& layer) : layer_(layer) {}
  const LinearLayer& layer() const { return layer_; }
  std::string name() const override { return "linear_gelu"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    arena.alloc(op.out(0).dtype, {layer_.out});
  }
  void run(const Operands& t) const override {
    const Tensor act = t.out(0);
    linear_gelu(act, t.out(1), t.in(0), t.weight(0), t.weight(1),
                t.ctx.scratch.alloc(act.dtype, {layer_.out}), t.ctx.stream);
  }
  void check(const PlacedOp& p) const override { check_product(p, 2); }
  void backward(BackwardRule& rule) const override;
  Op again(const Op& op, const KnownValues& is_known) const override {
    return is_known(op.out[1]) ? gelu_of(op.out[0], op.out[1], op) : op;
  }

 private:
  LinearLayer layer_;
};

const GeluProduct* gelu_product(const Op* op) {
  return op ? dynamic_cast<const GeluProduct*>(op->primitive.get()) : nullptr;
}

// Returns how the gradient of x lies: with a sharded weight of outputs it is a term of a sum.
Placement gradient_placement(const BackwardRule& rule, const LinearLayer& layer, ValueId dy) {
  if (layer.is_whole) return rule.b[dy].placement;
  const bool is_term = layer.split == Split::kOutputs && rule.b.spec().tp.count > 1;
  return is_term ? Placement::kPartial : rule.b[rule.op.in[0]].placement;
}

void add_weight_gradients(BackwardRule& rule, const LinearLayer& layer, ValueId dy, int bias) {
  const ValueId x = rule.op.in[0];
  const bool is_term = layer.is_whole && (rule.b[dy].placement == Placement::kPartial ||
                                          rule.b[x].placement == Placement::kPartial);
  PartialGradient term(rule.b, layer.weight, layer.out * layer.in, is_term);
  Op& dw = rule.b.add(std::make_shared<WeightGradients>(layer.scale), {dy, x}, {term.value()});
  dw.gradients = {term.direct()};
  if (rule.b.spec().trains(bias)) dw.gradients.push_back(bias);
  term.finish();
}

// Adds the operations that turn dy into the gradients of the weight, of the bias if it is not -1, and of x.
void add_gradients_of(BackwardRule& rule, const LinearLayer& layer, ValueId dy, int bias) {
  const ValueId x = rule.op.in[0];
  add_weight_gradients(rule, layer, dy, bias);
  const Op* producer = rule.producer(x);
  if (gelu_product(producer)) {
    const ValueId pre = producer->out[1], d_pre = rule.gradient_like(pre);
    rule.b.add(std::make_shared<GeluInputGradient>(), {dy, pre}, {d_pre}).weights = {layer.weight};
    return rule.give_to(pre, d_pre);
  }
  const ValueId dx = rule.gradient_like(x, gradient_placement(rule, layer, dy));
  rule.b.add(std::make_shared<InputGradient>(layer.scale), {dy}, {dx}).weights = {layer.weight};
  rule.give(0, dx);
}

void Product::backward(BackwardRule& rule) const {
  const Op& op = rule.op;
  const ValueId dy = layer_.is_whole ? rule.d_or_term(0) : rule.d(0);
  const int bias = has_bias(op) ? op.weights[1] : -1;
  if (op.in.size() > 1 && op.in[1] != kNoValue) rule.give(1, dy);
  if (!is_fp8_) return add_gradients_of(rule, layer_, dy, bias);
  if (bias >= 0) add_bias_backward(rule.b, dy, bias);
  const ValueId codes = op.out.size() > 1 ? op.out[1] : kNoValue;
  const ValueId x = op.in[0];
  const ValueId dx = rule.gradient_like(x, gradient_placement(rule, layer_, dy));
  Op& made = rule.b.add(std::make_shared<Fp8Backward>(layer_, codes != kNoValue), {dy}, {dx});
  made.weights = {layer_.weight};
  rule.give(0, dx);
  if (!rule.b.spec().trains(layer_.weight)) return;
  made.in.push_back(codes == kNoValue ? x : codes);
  made.gradients = {layer_.weight};
  if (codes == kNoValue) made.in_place = {{0, 1, false}};
}

void GeluProduct::backward(BackwardRule& rule) const {
  add_gradients_of(rule, layer_, rule.d(1), layer_.bias);
}

const Product* product_of(const Op& op) { return dynamic_cast<const Product*>(op.primitive.get()); }

// Returns x · wᵀ, and what is added to it.
ValueId product(Builder& b, ValueId x, const LinearLayer& layer, const char* name, ValueId base = kNoValue) {
  const Placement whole = layer.split == Split::kOutputs ? Placement::kColumns : Placement::kPartial;
  const Placement placement = layer.is_whole           ? b[x].placement
                              : b.spec().tp.count == 1 ? Placement::kWhole
                                                       : whole;
  const int64_t N = b[x].shape[0];
  const ValueId y = b.value(name, b.spec().compute, {N, layer.out}, placement);
  const bool is_fp8 = b.spec().has_fp8 && layer.fp8.recipe != Fp8Recipe::kNone;
  std::vector<ValueId> in{x}, out{y};
  if (base != kNoValue) in.push_back(base);
  if (is_fp8 && b.spec().device == Device::kCuda && layer.fp8.has_one_scale() &&
      b.spec().keeps_codes(b.scope()) && b.spec().trains(layer.weight))
    out.push_back(b.value("codes", DType::f8e4m3, {layer.in + 1, N}, b[x].placement));
  b.add(std::make_shared<Product>(layer, is_fp8), std::move(in), std::move(out)).weights = {layer.weight};
  return y;
}

}  // namespace

ValueId linear(Builder& b, ValueId x, const LinearLayer& layer) {
  const bool splits_outputs = layer.split == Split::kOutputs, is_split = b.spec().tp.count > 1;
  if (splits_outputs) x = gather_rows(b, x);
  b.require(x, !is_split || splits_outputs ? Placement::kWhole : Placement::kColumns, Placement::kWhole,
            "linear");
  ValueId y = product(b, x, layer, "y");
  if (!layer.adapter.empty()) {
    const ValueId low = product(b, x, layer.adapter[0], "low rank");
    y = product(b, low, layer.adapter[1], "adapted", y);
  }
  y = sum_to_stream(b, y);
  if (layer.bias < 0 || layer.is_bias_activated) return y;
  const ValueId sum = b.like(y, "biased");
  Op& op = b.add(std::make_shared<Bias>(), {y}, {sum});
  op.weights = {layer.bias};
  op.in_place = {{0, 0, true}};
  return sum;
}

bool takes_bias(Op& op, const Op& bias) {
  if (!product_of(op) || !dynamic_cast<const Bias*>(bias.primitive.get()) || bias.in[0] != op.out[0])
    return false;
  op.weights.push_back(bias.weights[0]);
  op.out[0] = bias.out[0];
  return true;
}

bool takes_addition(Op& op, ValueId x, ValueId sum) {
  if (!product_of(op) || op.in.size() > 1) return false;
  op.in.push_back(x);
  op.out[0] = sum;
  return true;
}

bool takes_gelu(Op& up, const Op& activation, const Op& down) {
  const Product *first = product_of(up), *second = product_of(down);
  const int bias = fusible_gelu_bias(activation);
  if (!first || !second || bias < 0 || first->is_fp8() || second->is_fp8()) return false;
  if (activation.in[0] != up.out[0] || down.in[0] != activation.out[0] || up.in.size() > 1) return false;
  const LinearLayer layer = first->layer();
  up.out = {activation.out[0], up.out[0]};
  up.weights = {layer.weight, bias};
  up.primitive = std::make_shared<GeluProduct>(layer);
  return true;
}

int cast_tensor(const Op& op) {
  const auto* forward = product_of(op);
  const auto* backward = dynamic_cast<const Fp8Backward*>(op.primitive.get());
  if (forward && forward->is_fp8() && forward->layer().fp8.recipe == Fp8Recipe::kTensorwise)
    return forward->layer().fp8.first_tensor;
  return backward && backward->layer().fp8.recipe == Fp8Recipe::kTensorwise
             ? backward->layer().fp8.first_tensor + 2
             : -1;
}

bool sums_columns_of(const Op& op, ValueId in) {
  return dynamic_cast<const BiasBackward*>(op.primitive.get()) && op.in[0] == in;
}

}  // namespace ingot
