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
  if (p.op.weights.size() > 1 || p.op.in.size() > 1) p.refuse_term(0);
}

// dy · w, by the split of w.
void check_input_gradient(const PlacedOp& p, std::optional<Split> w) {
  p.refuse(0, Placement::kPartial);
  if (!w) return p.expect_out(0, p.in(0));
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

// dw += dyᵀ · x and, with two gradients, db += column sums of dy. in: dy, x.
class WeightGradients final : public Primitive {
 public:
  std::string name() const override { return "weight_gradient"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    if (has_bias(op.op)) alloc_sums(arena, op.in(0).shape[1]);
  }
  void run(const Operands& t) const override {
    const WeightGradient dw = t.weight_gradient(0);
    const Tensor dy = t.in(0);
    if (!has_bias(t.op)) return matmul(dw.dw, dy, t.in(1), MatmulForm::kTN, dw.adds, t.ctx.stream);
    linear_weight_gradients(dw, t.gradient(1), dy, t.in(1), alloc_sums(t.ctx.scratch, dy.dim(1)),
                            t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    check_weight_gradient(p);
    p.contributes_column_sums(1);
  }

 private:
  static bool has_bias(const Op& op) { return op.gradients.size() > 1; }
};

// dx = dy · w.
class InputGradient final : public Primitive {
 public:
  std::string name() const override { return "input_gradient"; }
  void run(const Operands& t) const override {
    matmul(t.out(0), t.in(0), t.weight(0), MatmulForm::kNN, false, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override { check_input_gradient(p, p.split(0)); }
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

// dw += dyᵀ · x and dx = dy · w with operands in FP8. in: dy, and x or the codes of it that forward left.
class Fp8Backward final : public Primitive {
 public:
  Fp8Backward(const LinearLayer& layer, bool has_codes) : layer_(layer), has_codes_(has_codes) {}
  const LinearLayer& layer() const { return layer_; }
  std::string name() const override { return "fp8_backward"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    layer_.fp8.plan_backward(arena, op.in(0).shape[0], layer_.out, layer_.in);
  }
  void run(const Operands& t) const override {
    const Tensor dx = t.out(0), dy = t.in(0);
    layer_.fp8.backward(dx, t.weight_gradient(0), dy, has_codes_ ? dx : t.in(1),
                        has_codes_ ? t.in(1) : Tensor{}, t.weight(0), *t.ctx.fp8, t.ctx.scratch, t.ctx.region,
                        t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    check_weight_gradient(p);
    check_input_gradient(p, p.split(0));
  }

 private:
  LinearLayer layer_;
  bool has_codes_;
};

// in: x, and what is added to the product; out: y, and the FP8 codes of x. weights: w, and the bias that is added.
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
    if (is_fp8_)
      return layer_.fp8.forward(y, x, t.out(1), t.weight(0), terms, *t.ctx.fp8, t.ctx.scratch, t.ctx.region,
                                t.ctx.stream);
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

// Adds the operations that turn dy into the gradients of the weight, of the bias if it is not -1, and of x.
void add_gradients_of(BackwardRule& rule, const LinearLayer& layer, ValueId dy, int bias) {
  const ValueId x = rule.op.in[0];
  Op& dw = rule.b.add(std::make_shared<WeightGradients>(), {dy, x}, {});
  dw.gradients = bias < 0 ? std::vector<int>{layer.weight} : std::vector<int>{layer.weight, bias};
  const Op* producer = rule.producer(x);
  if (gelu_product(producer)) {
    const ValueId pre = producer->out[1], d_pre = rule.gradient_like(pre);
    rule.b.add(std::make_shared<GeluInputGradient>(), {dy, pre}, {d_pre}).weights = {layer.weight};
    return rule.give_to(pre, d_pre);
  }
  const bool is_term = layer.split == Split::kOutputs && rule.b.spec().tp.count > 1;
  const ValueId dx = rule.gradient_like(x, is_term ? Placement::kPartial : rule.b[x].placement);
  rule.b.add(std::make_shared<InputGradient>(), {dy}, {dx}).weights = {layer.weight};
  rule.give(0, dx);
}

void Product::backward(BackwardRule& rule) const {
  const Op& op = rule.op;
  const ValueId dy = rule.d(0);
  const int bias = has_bias(op) ? op.weights[1] : -1;
  if (op.in.size() > 1 && op.in[1] != kNoValue) rule.give(1, dy);
  if (!is_fp8_) return add_gradients_of(rule, layer_, dy, bias);
  if (bias >= 0) add_bias_backward(rule.b, dy, bias);
  const ValueId codes = op.out.size() > 1 ? op.out[1] : kNoValue;
  const bool is_term = layer_.split == Split::kOutputs && rule.b.spec().tp.count > 1;
  const ValueId x = op.in[0];
  const ValueId dx = rule.gradient_like(x, is_term ? Placement::kPartial : rule.b[x].placement);
  Op& made = rule.b.add(std::make_shared<Fp8Backward>(layer_, codes != kNoValue),
                        {dy, codes == kNoValue ? x : codes}, {dx});
  made.weights = made.gradients = {layer_.weight};
  if (codes == kNoValue) made.in_place = {{0, 1, false}};
  rule.give(0, dx);
}

void GeluProduct::backward(BackwardRule& rule) const {
  add_gradients_of(rule, layer_, rule.d(1), layer_.bias);
}

const Product* product(const Op& op) { return dynamic_cast<const Product*>(op.primitive.get()); }

// Returns this rank's slice of the outputs. Matrices with rows that neighbouring ranks share come last.
TensorSlice slice_of_outputs(const LinearSpec& spec, const TensorParallel& tp) {
  TensorSlice slice{.full = {spec.out, spec.in}};
  int64_t begin = 0;
  for (const int64_t part : spec.fused_rows.empty() ? std::vector<int64_t>{spec.out} : spec.fused_rows) {
    const int64_t count = tp.slice(part, spec.least_rows);
    slice.rows.push_back({.first = begin + tp.first(part, spec.least_rows), .count = count});
    begin += part;
    const int holders = tp.holders(part, spec.least_rows);
    INGOT_CHECK(holders > 1 || slice.common_rows == 0,
                "declare_linear: the rows of {} that ranks share are not its last", spec.prefix);
    if (holders == 1) continue;
    slice.common_rows += count;
    slice.has_copies = tp.rank % holders != 0;
  }
  INGOT_CHECK(begin == spec.out, "declare_linear: {} has {} rows, its parts {}", spec.prefix, spec.out,
              begin);
  return slice;
}

int64_t outputs_of(const TensorSlice& slice) {
  int64_t total = 0;
  for (const TensorSlice::Rows& rows : slice.rows) total += rows.count;
  return total;
}

}  // namespace

LinearLayer declare_linear(ParamList& params, const LinearSpec& spec, const TensorParallel& tp) {
  const bool splits_outputs = spec.split == Split::kOutputs;
  LinearLayer layer{.out = splits_outputs ? outputs_of(slice_of_outputs(spec, tp)) : spec.out,
                    .in = splits_outputs ? spec.in : tp.slice(spec.in),
                    .split = spec.split,
                    .is_bias_activated = spec.is_bias_activated};
  ParamSpec weight{.name = spec.prefix + ".weight",
                   .shape = {layer.out, layer.in},
                   .role = ParamRole::kMatrix,
                   .init = spec.init,
                   .init_std = spec.std,
                   .is_overwritten = true,
                   .fused_rows = spec.fused_rows,
                   .unit = spec.unit};
  ParamSpec bias{.name = spec.prefix + ".bias",
                 .shape = {layer.out},
                 .role = ParamRole::kBias,
                 .init = Init::kZero,
                 .unit = spec.unit};
  if (tp.count > 1 && splits_outputs) {
    weight.slice = bias.slice = slice_of_outputs(spec, tp);
    bias.slice.full = {spec.out};
  } else if (tp.count > 1) {
    weight.slice = {.full = {spec.out, spec.in},
                    .rows = {{.first = 0, .count = spec.out}},
                    .first_column = tp.first(spec.in)};
  }
  layer.weight = params.add(std::move(weight));
  if (spec.has_bias) layer.bias = params.add(std::move(bias));
  return layer;
}

void use_fp8(LinearLayer& layer, const ParamList& params, const Fp8LinearConfig& config,
             const TensorParallel& tp, std::vector<std::string>& tensors) {
  const std::string& weight = params[layer.weight].name;
  const std::string name = weight.substr(0, weight.rfind('.'));
  const Shape& full = params[layer.weight].full_shape();
  if (!config.converts(name, full[0], full[1])) return;
  layer.fp8 = {.recipe = config.recipe,
               .first_tensor = static_cast<int>(tensors.size()),
               .splits_x = tp.count > 1 && layer.split == Split::kInputs,
               .splits_dy = tp.count > 1 && layer.split == Split::kOutputs};
  for (const char* tensor : {".x", ".w", ".dy"}) tensors.push_back(name + tensor);
}

ValueId linear(Builder& b, ValueId x, const LinearLayer& layer) {
  const bool splits_outputs = layer.split == Split::kOutputs, is_split = b.spec().tp.count > 1;
  if (splits_outputs) x = gather_rows(b, x);
  b.require(x, !is_split || splits_outputs ? Placement::kWhole : Placement::kColumns, Placement::kWhole,
            "linear");
  const Placement placement = !is_split        ? Placement::kWhole
                              : splits_outputs ? Placement::kColumns
                                               : Placement::kPartial;
  const int64_t N = b[x].shape[0];
  ValueId y = b.value("y", b.spec().compute, {N, layer.out}, placement);
  const bool is_fp8 = b.spec().has_fp8 && layer.fp8.recipe != Fp8Recipe::kNone;
  std::vector<ValueId> out{y};
  if (is_fp8 && b.spec().device == Device::kCuda && layer.fp8.has_one_scale() &&
      b.spec().keeps_codes(b.scope()))
    out.push_back(b.value("codes", DType::f8e4m3, {layer.in + 1, N}, b[x].placement));
  b.add(std::make_shared<Product>(layer, is_fp8), {x}, out).weights = {layer.weight};
  y = sum_to_stream(b, y);
  if (layer.bias < 0 || layer.is_bias_activated) return y;
  const ValueId sum = b.like(y, "biased");
  Op& op = b.add(std::make_shared<Bias>(), {y}, {sum});
  op.weights = {layer.bias};
  op.in_place = {{0, 0, true}};
  return sum;
}

bool takes_bias(Op& op, const Op& bias) {
  if (!product(op) || !dynamic_cast<const Bias*>(bias.primitive.get()) || bias.in[0] != op.out[0])
    return false;
  op.weights.push_back(bias.weights[0]);
  op.out[0] = bias.out[0];
  return true;
}

bool takes_addition(Op& op, ValueId x, ValueId sum) {
  if (!product(op)) return false;
  op.in.push_back(x);
  op.out[0] = sum;
  return true;
}

bool takes_gelu(Op& up, const Op& activation, const Op& down) {
  const Product *first = product(up), *second = product(down);
  const int bias = fusible_gelu_bias(activation);
  if (!first || !second || bias < 0 || first->is_fp8() || second->is_fp8()) return false;
  if (activation.in[0] != up.out[0] || down.in[0] != activation.out[0]) return false;
  const LinearLayer layer = first->layer();
  up.out = {activation.out[0], up.out[0]};
  up.weights = {layer.weight, bias};
  up.primitive = std::make_shared<GeluProduct>(layer);
  return true;
}

int cast_tensor(const Op& op) {
  const auto* forward = product(op);
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
