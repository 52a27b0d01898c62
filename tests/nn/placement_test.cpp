// Mistakes of tensor parallelism, planted into the lists of models: the check of the placements names each of
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "ingot/nn/program/check.h"
#include "tests/nn/small_model.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using namespace ::testing;

// The list of one of two ranks, which a test may change.
struct List {
  List(ModelConfig config, bool splits_tokens) {
    config.dropout = 0;
    const Transformer model(config.resolved(), DType::f32, {}, {},
                            {.rank = 1, .count = 2, .splits_tokens = splits_tokens});
    Arena measure("measure");
    const Transformer::Saved saved = model.make_saved(measure, 2, 16);
    ops = saved.training.program->ops();
    values = saved.training.program->values();
    params = model.params();
    units = model.all_units();
  }

  // Returns the error of the check, or "no error".
  std::string error() const {
    return error_of([&] {
      check_placements(ops, values, params);
      check_gradients(ops, params, units);
    });
  }
  const std::string& name_of(ValueId id) const { return values[static_cast<size_t>(id)].name; }
  // The first operation of a kind of a block; block -1: outside blocks.
  size_t find(const std::string& name, int block) const {
    const auto found = std::ranges::find_if(
        ops, [&](const Op& op) { return op.primitive->name() == name && op.scope.block == block; });
    EXPECT_NE(found, ops.end()) << name << " of block " << block;
    return static_cast<size_t>(found - ops.begin());
  }
  Op& op(const std::string& name, int block) { return ops[find(name, block)]; }
  // Takes an operation out; its readers read its input instead.
  void skip(size_t index) {
    const Op skipped = ops[index];
    ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(index));
    for (Op& op : ops) std::ranges::replace(op.in, skipped.out[0], skipped.in[0]);
  }
  std::vector<Op>::iterator reduction_of(int unit) {
    return std::ranges::find_if(ops, [&](const Op& op) {
      return op.primitive->name() == "start_reduction" && op.scope.unit == unit;
    });
  }
  int param(const std::string& name) const {
    const auto found = std::ranges::find(params.specs(), name, &ParamSpec::name);
    EXPECT_NE(found, params.specs().end()) << name;
    return static_cast<int>(found - params.specs().begin());
  }
  // Declares the parameters anew with a slice changed.
  void reslice(const std::string& name, const TensorSlice& slice) {
    ParamList changed;
    for (ParamSpec spec : params.specs()) {
      if (spec.name == name) spec.slice = slice;
      changed.add(spec);
    }
    params = changed;
  }

  std::vector<Op> ops;
  std::vector<Value> values;
  ParamList params;
  UnitRange units;
};

ModelConfig llama() { return test::small_llama(2); }
ModelConfig gpt2() { return test::gpt2_style(test::small_llama(2)); }
ModelConfig with_gains() {
  ModelConfig config = llama();
  config.has_qk_norm = config.has_qk_norm_gain = true;
  return config;
}

ModelConfig table_alone() { return test::speedrun_style(llama()); }

TEST(Placement, OfRightListsHasNoError) {
  for (const bool splits_tokens : {false, true})
    for (const ModelConfig& config :
         {llama(), gpt2(), with_gains(), table_alone(), test::whole_speedrun_style(llama())})
      EXPECT_EQ(List(config, splits_tokens).error(), "no error");
}

struct Mistake {
  const char* name;
  std::function<ModelConfig()> model;
  bool splits_tokens;
  std::function<void(List&)> plant;
  const char* error;  // part of it
};

class PlantedMistake : public TestWithParam<Mistake> {};

TEST_P(PlantedMistake, IsNamed) {
  List list(GetParam().model(), GetParam().splits_tokens);
  GetParam().plant(list);
  EXPECT_THAT(list.error(), HasSubstr(GetParam().error));
}

// An operation adds the rank's term to a gradient as if it were the whole.
void add_term_directly(Op& op, size_t gradient, int param) {
  op.out[gradient + 1] = kNoValue;
  op.gradients[gradient] = param;
}

INSTANTIATE_TEST_SUITE_P(
    Model, PlantedMistake,
    Values(
        Mistake{
            "GainOfANormIsNotSummedOverTokens", llama, true,
            [](List& l) {
              add_term_directly(l.op("norm_backward", 0), 0, l.param("blocks.0.mlp.norm.weight"));
            },
            "the gradient of blocks.0.mlp.norm.weight is a term of a sum over tp that no operation adds up"},
        Mistake{
            "BiasOfANormIsNotSummedOverTokens", gpt2, true,
            [](List& l) {
              add_term_directly(l.op("norm_backward", 1), 1, l.param("blocks.1.mlp.norm.bias"));
            },
            "the gradient of blocks.1.mlp.norm.bias is a term of a sum over tp that no operation adds up"},
        Mistake{"GainOfHeadsIsNotSummedOverHeads", with_gains, false,
                [](List& l) {
                  add_term_directly(l.op("rotate_backward", 0), 0,
                                    l.param("blocks.0.attention.q_norm.weight"));
                },
                "the gradient of blocks.0.attention.q_norm.weight is a term of a sum over tp"},
        Mistake{"SumOfAGradientIsLeftOut", llama, true,
                [](List& l) {
                  l.ops.erase(l.ops.begin() + static_cast<std::ptrdiff_t>(l.find("add_partial_gradient", 1)));
                },
                "no operation writes the gradient of blocks.1.mlp.norm.weight"},
        Mistake{"GradientOfAWeightIsLeftOut", llama, false,
                [](List& l) {
                  l.ops.erase(l.ops.begin() + static_cast<std::ptrdiff_t>(l.find("weight_gradient", 1)));
                },
                "no operation writes the gradient of blocks.1.mlp.down.weight"},
        Mistake{"BiasIsAddedOnEveryRankBeforeTheSum", gpt2, false,
                [](List& l) {
                  Op& sum = l.op("leave", 0);
                  const ValueId term = sum.in[0];
                  for (Op& op : l.ops)
                    if (op.primitive->name() == "bias" && op.in[0] == sum.out[0]) op.in[0] = term;
                },
                "bias: its input blocks.0.attention.y is a sum that is still due over tp"},
        Mistake{"SumAfterAttentionIsLeftOut", llama, false, [](List& l) { l.skip(l.find("leave", 0)); },
                "blocks.0.attention.y is a sum that is still due over tp"},
        Mistake{"SumIsMadeTwice", llama, false,
                [](List& l) {
                  const size_t at = l.find("leave", 0);
                  Op again = l.ops[at];
                  again.in = again.out;
                  l.ops.insert(l.ops.begin() + static_cast<std::ptrdiff_t>(at) + 1, again);
                },
                "leave: its input blocks.0.attention.sum is whole over tp; wanted: a sum that is still due"},
        Mistake{"RowsAreNotGathered", llama, true, [](List& l) { l.skip(l.find("enter", 0)); },
                "linear: its input blocks.0.attention.norm is split by tokens over tp; wanted: whole"},
        Mistake{"RowsAreScatteredAndNotGathered", llama, true,
                [](List& l) { l.skip(l.find("leave_backward", 1)); }, "weight_gradient"},
        Mistake{"GradientOfAnInputIsNotSummed", llama, false,
                [](List& l) { l.skip(l.find("enter_backward", 0)); }, "norm_backward: its input"},
        Mistake{"TermsOfTheEmbeddingAreNotSummed", llama, false, [](List& l) { l.skip(l.find("leave", -1)); },
                "norm: its input embedding.x is a sum that is still due over tp"},
        Mistake{"GradientOfTheHeadIsNotSummed", llama, false,
                [](List& l) { l.skip(l.find("enter_backward", -1)); },
                "norm_backward: its input head.d norm"},
        Mistake{"HeadReadsItsOwnRowsAlone", llama, true, [](List& l) { l.skip(l.find("enter", -1)); },
                "loss_head: its input head.norm is split by tokens over tp; wanted: whole"},
        Mistake{"ProductOfInputsReadsAWholeInput", llama, false,
                [](List& l) {
                  for (Op& op : l.ops)
                    if (op.primitive->name() == "linear" && l.name_of(op.in[0]) == "blocks.0.mlp.act")
                      op.in[0] = l.op("norm", 0).out[0];
                },
                "linear: its input blocks.0.attention.norm is whole over tp; wanted: split by columns"},
        Mistake{"AttentionReadsRowsOfOneRank", llama, true,
                [](List& l) { l.op("attention", 1).in[0] = l.op("norm", 1).out[0]; },
                "attention: its input blocks.1.attention.norm is split by tokens over tp"},
        Mistake{"WholeWeightIsFlaggedAsSplit", llama, false,
                [](List& l) {
                  l.reslice("blocks.0.attention.norm.weight",
                            {.full = {64}, .rows = {{.first = 32, .count = 32}}});
                },
                "the gradient of blocks.0.attention.norm.weight is whole; the parameter is split by outputs"},
        Mistake{"SplitWeightIsNotFlagged", llama, false,
                [](List& l) { l.reslice("blocks.0.mlp.up.weight", {}); },
                "linear: its output blocks.0.mlp.y is split by columns over tp; wanted: whole"},
        Mistake{"BiasOfOutputsIsWhole", gpt2, false,
                [](List& l) { l.reslice("blocks.0.attention.qkv.bias", {}); },
                "blocks.0.attention.qkv.bias is whole, and the columns of its operand are split"},
        Mistake{"TiedTableIsSplitInTheHeadAlone", llama, false,
                [](List& l) { l.reslice("embedding.weight", {}); },
                "embedding: its output embedding.x is a sum that is still due over tp; wanted: whole"},
        Mistake{"HeadWithoutANormIsNotReduced", table_alone, false,
                [](List& l) { l.ops.erase(l.reduction_of(l.units.end - 1)); },
                "the reduction of unit 3 begins 0 times, and it has gradients such as that of head.weight"},
        Mistake{"BlockIsReducedTwice", llama, false, [](List& l) { l.ops.push_back(*l.reduction_of(1)); },
                "the reduction of unit 1 begins 2 times"},
        Mistake{"BlockIsReducedBeforeItsLastGradient", llama, true,
                [](List& l) {
                  const auto reduction = l.reduction_of(2);
                  const Op moved = *reduction;
                  l.ops.erase(reduction);
                  l.ops.insert(l.ops.begin() + static_cast<std::ptrdiff_t>(l.find("norm_backward", 1)),
                               moved);
                },
                "after the reduction of its unit has begun"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ingot
