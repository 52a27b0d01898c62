// The proof that the values of a list lie on the tensor-parallel ranks as its operations need them, and that
// every gradient is whole where its parameter is. It looks at the finished list, so it finds a mistake of a
// builder function, a backward rule or a pass. Each operation states its rule (Primitive::check). A wrong
// rule, a wrong kernel or a wrong order of messages is found by comparing ranks with a single one, and not
// here.
#pragma once

#include <optional>
#include <vector>

#include "ingot/nn/program/builder.h"

namespace ingot {

// An operation adds one of these to the gradient of a parameter. kTerm: a term of a sum over the ranks.
enum class Contribution : uint8_t { kWhole, kOutputs, kInputs, kTerm };

// An operation with the placements of its operands. The functions throw a kInternal error that names the
// operation, the operand, its placement and the one that is wanted. They accept operands that are absent.
class PlacedOp {
 public:
  PlacedOp(const Op& op, const std::vector<Value>& values, const ParamList& params)
      : op(op), values_(values), params_(params) {}

  const Op& op;

  Placement in(size_t i) const { return placement(op.in, i).value_or(Placement::kWhole); }
  bool has_out(size_t i) const { return placement(op.out, i).has_value(); }
  void expect_in(size_t i, Placement wanted) const { expect("input", op.in, i, wanted); }
  void expect_out(size_t i, Placement wanted) const { expect("output", op.out, i, wanted); }
  // The inputs and the first outputs lie like the first input, which is no term of a sum.
  void expect_alike(size_t outputs) const;
  void refuse(size_t in, Placement refused) const;
  // The output is no term of a sum.
  void refuse_term(size_t out) const;
  // The output is absent, or takes this rank's term of a gradient because the first input is split in the
  // given way.
  void expect_term_of(Placement split, size_t out) const;
  // Returns by which dim a weight is split over the ranks; nullopt if they all have the whole.
  std::optional<Split> split(size_t weight) const;
  // A weight of output features is split like the columns of an operand.
  void expect_vector(size_t weight, Placement of_columns) const;
  // Compares what the operation adds to a gradient with how the parameter lies.
  void contributes(size_t gradient, Contribution added) const;
  // Does so for the column sums of the first input.
  void contributes_column_sums(size_t gradient) const;

 private:
  std::optional<Placement> placement(const std::vector<ValueId>& ids, size_t i) const;
  void expect(const char* what, const std::vector<ValueId>& ids, size_t i, Placement wanted) const;
  std::optional<Split> split_of(int param) const;

  const std::vector<Value>& values_;
  const ParamList& params_;
};

// Throws for a list that breaks a rule.
void check_placements(const std::vector<Op>& ops, const std::vector<Value>& values, const ParamList& params);
// Throws for a training list that writes no gradient of a trained parameter of its units or one of a frozen
// parameter, or that does not start the reduction of a unit's gradients exactly once, after all of them.
void check_gradients(const std::vector<Op>& ops, const ParamList& params, UnitRange units);

}  // namespace ingot
