#include "ingot/nn/program/check.h"

#include "ingot/core/error.h"

namespace ingot {
namespace {

const char* text_of(Contribution added) {
  switch (added) {
    case Contribution::kWhole:
      return "whole";
    case Contribution::kOutputs:
      return "split by outputs";
    case Contribution::kInputs:
      return "split by inputs";
    case Contribution::kTerm:
      return "a term of a sum over tp that no operation adds up";
  }
  return "";
}

Contribution stored(std::optional<Split> split) {
  if (!split) return Contribution::kWhole;
  return *split == Split::kOutputs ? Contribution::kOutputs : Contribution::kInputs;
}

}  // namespace

std::optional<Placement> PlacedOp::placement(const std::vector<ValueId>& ids, size_t i) const {
  if (i >= ids.size() || ids[i] == kNoValue) return std::nullopt;
  return values_[static_cast<size_t>(ids[i])].placement;
}

void PlacedOp::expect(const char* what, const std::vector<ValueId>& ids, size_t i, Placement wanted) const {
  const std::optional<Placement> is = placement(ids, i);
  if (is && *is != wanted)
    fail(ErrorKind::kInternal, "{}: its {} {} is {} over tp; wanted: {}", op.primitive->name(), what,
         values_[static_cast<size_t>(ids[i])].name, ingot::text_of(*is), ingot::text_of(wanted));
}

void PlacedOp::expect_alike(size_t outputs) const {
  const Placement first = in(0);
  refuse(0, Placement::kPartial);
  for (size_t i = 0; i < op.in.size(); ++i) expect_in(i, first);
  for (size_t i = 0; i < outputs; ++i) expect_out(i, first);
}

void PlacedOp::refuse(size_t i, Placement refused) const {
  if (placement(op.in, i) == refused)
    fail(ErrorKind::kInternal, "{}: its input {} is {} over tp", op.primitive->name(),
         values_[static_cast<size_t>(op.in[i])].name, ingot::text_of(refused));
}

void PlacedOp::refuse_term(size_t i) const {
  if (placement(op.out, i) == Placement::kPartial) expect_out(i, Placement::kWhole);
}

void PlacedOp::expect_term_of(Placement split, size_t i) const {
  if (!has_out(i)) return;
  expect_out(i, Placement::kPartial);
  expect_in(0, split);
}

std::optional<Split> PlacedOp::split(size_t weight) const {
  return weight < op.weights.size() ? split_of(op.weights[weight]) : std::nullopt;
}

std::optional<Split> PlacedOp::split_of(int param) const {
  if (param < 0 || !params_[param].is_sharded()) return std::nullopt;
  const ParamSpec& spec = params_[param];
  return !spec.is_vector() && spec.shape[1] < spec.slice.full[1] ? Split::kInputs : Split::kOutputs;
}

void PlacedOp::expect_vector(size_t weight, Placement of_columns) const {
  if (weight >= op.weights.size() || op.weights[weight] < 0) return;
  if (split(weight).has_value() != (of_columns == Placement::kColumns))
    fail(ErrorKind::kInternal, "{}: {} is {}, and the columns of its operand are {}", op.primitive->name(),
         params_[op.weights[weight]].name, split(weight) ? "split" : "whole",
         of_columns == Placement::kColumns ? "split" : "whole");
}

void PlacedOp::contributes(size_t gradient, Contribution added) const {
  if (gradient >= op.gradients.size() || op.gradients[gradient] < 0) return;
  const int param = op.gradients[gradient];
  const Contribution wanted = stored(split_of(param));
  if (added != wanted)
    fail(ErrorKind::kInternal, "{}: the gradient of {} is {}; the parameter is {}", op.primitive->name(),
         params_[param].name, text_of(added), text_of(wanted));
}

void PlacedOp::contributes_column_sums(size_t gradient) const {
  refuse(0, Placement::kPartial);
  contributes(gradient, in(0) == Placement::kTokens    ? Contribution::kTerm
                        : in(0) == Placement::kColumns ? Contribution::kOutputs
                                                       : Contribution::kWhole);
}

void Primitive::check(const PlacedOp& op) const { op.expect_alike(op.op.out.size()); }

void check_placements(const std::vector<Op>& ops, const std::vector<Value>& values, const ParamList& params) {
  for (const Op& op : ops) op.primitive->check({op, values, params});
}

namespace {

void check_reductions(const std::vector<Op>& ops, const ParamList& params) {
  std::vector<int> reductions(static_cast<size_t>(params.units())), last_gradient(reductions.size(), -1);
  for (const Op& op : ops) {
    for (const int id : op.gradients) {
      if (id < 0) continue;
      const auto unit = static_cast<size_t>(params[id].unit);
      last_gradient[unit] = id;
      if (reductions[unit] > 0)
        fail(ErrorKind::kInternal, "{} adds to the gradient of {} after the reduction of its unit has begun",
             op.primitive->name(), params[id].name);
    }
    if (op.primitive->name() == "start_reduction") ++reductions[static_cast<size_t>(op.scope.unit)];
  }
  for (size_t unit = 0; unit < reductions.size(); ++unit)
    if (reductions[unit] != (last_gradient[unit] < 0 ? 0 : 1))
      fail(ErrorKind::kInternal, "the reduction of unit {} begins {} times{}", unit, reductions[unit],
           last_gradient[unit] < 0
               ? std::string()
               : fmt::format(", and it has gradients such as that of {}", params[last_gradient[unit]].name));
}

}  // namespace

void check_gradients(const std::vector<Op>& ops, const ParamList& params, UnitRange units) {
  std::vector<bool> is_written(params.specs().size());
  for (const Op& op : ops)
    for (const int id : op.gradients)
      if (id >= 0) is_written[static_cast<size_t>(id)] = true;
  for (size_t p = 0; p < is_written.size(); ++p) {
    const ParamSpec& spec = params.specs()[p];
    if (!spec.is_trained && is_written[p])
      fail(ErrorKind::kInternal, "an operation writes the gradient of {}, which is frozen", spec.name);
    if (spec.is_trained && !is_written[p] && units.first <= spec.unit && spec.unit < units.end)
      fail(ErrorKind::kInternal, "no operation writes the gradient of {}", spec.name);
  }
  check_reductions(ops, params);
}

}  // namespace ingot
