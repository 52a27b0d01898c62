#include "ingot/nn/primitives/ends.h"

#include "ingot/core/copy.h"
#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/program/check.h"
#include "ingot/ops/embedding.h"
#include "ingot/ops/int8_matrix.h"

namespace ingot {
namespace {

TableSlice slice_of(const Tensor& rows, const EmbeddingSpec& spec, const TensorParallel& tp) {
  return {rows, spec.splits_columns ? 0 : tp.first(spec.Vp), spec.Vp};
}

// Returns the placement of a rank's output before any sum.
Placement placement_of(const EmbeddingSpec& spec, const TensorParallel& tp) {
  if (tp.count == 1) return Placement::kWhole;
  return spec.splits_columns ? Placement::kColumns : Placement::kPartial;
}

// in: the gradient (N, C) of the embedding's output.
class EmbeddingBackward final : public Primitive {
 public:
  EmbeddingBackward(const EmbeddingSpec& spec, const TensorParallel& tp) : spec_(spec), tp_(tp) {}
  std::string name() const override { return "embedding_backward"; }
  void run(const Operands& t) const override {
    const Tensor& tokens = t.args.batch->tokens;
    embedding_backward(slice_of(t.gradient(0), spec_, tp_), t.gradient(1), t.in(0),
                       tokens.reshape({tokens.elements()}), tokens.dim(1), 0, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    const Placement placement = placement_of(spec_, tp_);
    p.expect_in(0, placement == Placement::kColumns ? placement : Placement::kWhole);
    p.contributes(0, placement == Placement::kWhole     ? Contribution::kWhole
                     : placement == Placement::kColumns ? Contribution::kInputs
                                                        : Contribution::kOutputs);
    p.contributes(1, Contribution::kWhole);
  }

 private:
  EmbeddingSpec spec_;
  TensorParallel tp_;
};

class Embedding final : public Primitive {
 public:
  Embedding(const EmbeddingSpec& spec, const TensorParallel& tp) : spec_(spec), tp_(tp) {}
  std::string name() const override { return "embedding"; }
  void run(const Operands& t) const override {
    const Tensor& tokens = t.args.batch->tokens;
    const Tensor ids = tokens.reshape({tokens.elements()});
    const Tensor& cached = t.args.positions;
    const int64_t T = cached ? tokens.elements() : tokens.dim(1);
    Tensor positions = cached ? cached : t.weight(1);
    if (tp_.rank != 0) positions = {};  // one rank adds them to the sum
    if (const Int8Matrix* codes = t.ctx.params.int8_weight(spec_.table))
      int8_embedding(t.out(0), ids, *codes, positions, t.ctx.stream);
    else
      embedding_forward(t.out(0), ids, slice_of(t.weight(0), spec_, tp_), positions, T, 0, t.ctx.stream);
  }
  void check(const PlacedOp& p) const override {
    p.expect_out(0, !p.split(0)                      ? Placement::kWhole
                    : *p.split(0) == Split::kOutputs ? Placement::kPartial
                                                     : Placement::kColumns);
  }
  void backward(BackwardRule& rule) const override {
    rule.b.add(std::make_shared<EmbeddingBackward>(spec_, tp_), {rule.d(0)}, {}).gradients = {
        spec_.table, spec_.positions};
  }

 private:
  EmbeddingSpec spec_;
  TensorParallel tp_;
};

// in: x (N, C); out: losses, is_correct, of a head with pairs counted and rewards, and in training the rank's
// term of the gradient of x.
class Head final : public Primitive {
 public:
  explicit Head(const LossHead& head) : head_(head) {}
  std::string name() const override { return "loss_head"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    head_.plan(arena, op.in(0).shape[0], op.op.out.size() > gradient());
  }
  void run(const Operands& t) const override {
    LossHead::Out out{.losses = t.out(0), .is_correct = t.out(1), .dx = t.out(gradient())};
    if (head_.has_pairs()) {
      out.counted = t.out(2);
      out.rewards = t.out(3);
    }
    const LinearCrossEntropyReport report =
        head_.forward(t.ctx, out, t.in(0), *t.args.batch, t.args.grad_scale);
    if (t.args.report) *t.args.report = report;
  }
  void check(const PlacedOp& p) const override {
    p.expect_in(0, Placement::kWhole);
    for (size_t i = 0; i < gradient(); ++i) p.expect_out(i, Placement::kWhole);
    p.expect_out(gradient(), p.split(0) ? Placement::kPartial : Placement::kWhole);
    p.contributes(0, p.split(0) ? Contribution::kOutputs : Contribution::kWhole);
  }

 private:
  size_t gradient() const { return head_.has_pairs() ? 4 : 2; }  // its place among the outputs

  const LossHead& head_;
};

// in: losses, is_correct, x, and of a head with pairs counted and rewards; out: sums, whose rows 1 and 2 are
// the rewards of pairs if there are any, and else for the losses that are checked.
class SumLosses final : public Primitive {
 public:
  explicit SumLosses(const LossHead& head) : head_(head) {}
  std::string name() const override { return "loss_sums"; }
  void scratch(const DescribedOp& op, Arena& arena) const override {
    head_.plan_check(arena, op.in(2).shape[0]);
  }
  void run(const Operands& t) const override {
    const Tensor targets = t.args.batch->targets.reshape({t.args.batch->targets.elements()}), sums = t.out(0);
    fill_zero(sums, t.ctx.stream);
    loss_sums(sums_row(sums, 0), t.in(0), t.in(1), head_.has_pairs() ? t.in(3) : targets, t.ctx.stream);
    if (t.args.batch->reference)
      for (const int64_t i : {0, 1})
        loss_sums(sums_row(sums, 1 + i), t.in(4).rows(i, i + 1).reshape({targets.elements()}), {}, t.in(3),
                  t.ctx.stream);
    else if (t.args.checked_tokens > 0)
      head_.check(t.ctx, sums.rows(1, 1 + kCheckSums), t.in(0), t.in(2), targets, t.args.checked_tokens);
  }

 private:
  const LossHead& head_;
};

}  // namespace

ValueId embedding(Builder& b, const EmbeddingSpec& spec) {
  const BuildSpec& s = b.spec();
  const ValueId x = b.value("x", s.compute, {s.tokens(), spec.C}, placement_of(spec, s.tp), Role::kStream);
  b.add(std::make_shared<Embedding>(spec, s.tp), {}, {x}).weights = {spec.table, spec.positions};
  const ValueId sum = sum_to_stream(b, x);
  b.set_role(sum, Role::kStream);
  return sum;
}

Losses losses(Builder& b, ValueId x, const LossHead& head) {
  const BuildSpec& s = b.spec();
  const int64_t N = s.tokens();
  const ValueId all = gather_rows(b, x);
  const auto result = [&](const char* name, DType dtype, const Shape& shape) {
    return b.value(name, dtype, shape, Placement::kWhole, Role::kResult);
  };
  Losses made{.losses = result("losses", DType::f32, {N}),
              .is_correct = result("is_correct", DType::u8, {N}),
              .sums = result("sums", DType::u8, {1 + kCheckSums, kLossTotalsBytes})};
  std::vector<ValueId> out{made.losses, made.is_correct}, sums{made.losses, made.is_correct, all};
  if (head.has_pairs()) {
    made.counted = result("counted", DType::i32, {N});
    made.rewards = result("rewards", DType::f32, {2, N});
    for (std::vector<ValueId>* ids : {&out, &sums}) ids->insert(ids->end(), {made.counted, made.rewards});
  }
  if (s.is_training)
    out.push_back(
        b.value("d norm", s.compute, b[all].shape, s.tp.count > 1 ? Placement::kPartial : Placement::kWhole));
  Op& op = b.add(std::make_shared<Head>(head), {all}, out);
  op.weights = {head.weight()};
  if (s.is_training) op.gradients = {head.weight()};
  if (s.is_training) made.d = enter_backward(b, out.back(), b[x].placement);
  b.add(std::make_shared<SumLosses>(head), sums, {made.sums});
  return made;
}

}  // namespace ingot
