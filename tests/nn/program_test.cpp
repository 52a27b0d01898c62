// The passes of a program on lists of a few operations, and what must hold for the programs of whole models.
#include "ingot/nn/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ingot/nn/primitives/elementwise.h"
#include "ingot/nn/primitives/linear.h"
#include "ingot/nn/primitives/norm.h"
#include "ingot/nn/program/program_text.h"
#include "tests/nn/small_model.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using namespace ::testing;

// "norm(x) -> h, rstd"
std::string text_of(const Op& op, const std::vector<Value>& values) {
  const auto list = [&](const std::vector<ValueId>& ids) {
    std::string text;
    for (const ValueId id : ids) {
      if (id == kNoValue) continue;
      if (!text.empty()) text += ", ";
      text += values[static_cast<size_t>(id)].name;
    }
    return text;
  };
  return fmt::format("{}({}) -> {}", op.primitive->name(), list(op.in), list(op.out));
}

// x + linear(x), and the norm of the sum, which are the ops of half a block.
struct SmallList {
  static constexpr int64_t kTokens = 4, kWidth = 16;

  explicit SmallList(BuildSpec spec = {}) : builder(with_shape(std::move(spec))) {
    LinearSpec linear_spec{.prefix = "proj", .out = kWidth, .in = kWidth, .std = 1, .has_bias = true};
    layer = declare_linear(params, linear_spec, {});
    norm_spec = declare_norm(params, 0, "norm", {.layers = 1, .width = kWidth});
    x = builder.value("x", DType::f32, {kTokens, kWidth}, Placement::kWhole, Role::kStream);
    const ValueId y = linear(builder, x, layer);
    h = norm(builder, add(builder, x, y), norm_spec);
  }
  static BuildSpec with_shape(BuildSpec spec) {
    spec.B = 1;
    spec.T = kTokens;
    return spec;
  }
  std::vector<std::string> lines(size_t begin = 0) const {
    std::vector<std::string> lines;
    for (size_t i = begin; i < builder.ops().size(); ++i)
      lines.push_back(text_of(builder.ops()[i], builder.values()));
    return lines;
  }

  ParamList params;
  LinearLayer layer;
  NormSpec norm_spec;
  Builder builder;
  ValueId x, h;
};

TEST(Fuse, JoinsAnAdditionAndANormOnTheCpu) {
  SmallList list;
  fuse(list.builder, true);
  EXPECT_THAT(list.lines(),
              ElementsAre("linear(x) -> y", "bias(y) -> biased", "norm(x, biased) -> norm, rstd, sum"));
}

TEST(Fuse, JoinsTheNeighboursOfAProductOnADevice) {
  SmallList list({.device = Device::kCuda});
  fuse(list.builder, true);
  EXPECT_THAT(list.lines(), ElementsAre("linear(x, x) -> sum", "norm(sum) -> norm, rstd"));
  SmallList generation({.device = Device::kCuda});
  fuse(generation.builder, false);
  EXPECT_THAT(generation.lines(), ElementsAre("linear(x) -> biased", "norm(x, biased) -> norm, rstd, sum"));
  SmallList apart({.device = Device::kCuda, .joins_products = false});
  fuse(apart.builder, true);
  EXPECT_THAT(apart.lines(),
              ElementsAre("linear(x) -> y", "bias(y) -> biased", "norm(x, biased) -> norm, rstd, sum"));
}

TEST(Differentiate, AppendsTheReverseAndAddsTheGradientsOfAValue) {
  SmallList list;
  fuse(list.builder, true);
  const size_t border = list.builder.ops().size();
  Gradients gradients;
  gradients.set(list.h, list.builder.like(list.h, "d h"));
  differentiate(list.builder, gradients);
  EXPECT_THAT(list.lines(border), ElementsAre("norm_backward(d h, sum, rstd) -> d sum",
                                              "bias_backward(d sum) -> ", "weight_gradient(d sum, x) -> ",
                                              "input_gradient(d sum) -> d x", HasSubstr("(d sum, d x) -> ")));
  EXPECT_NE(gradients.get(list.x), kNoValue);
}

TEST(Builder, NamesAValueThatIsASumStillDue) {
  Builder b(SmallList::with_shape({.tp = {.rank = 0, .count = 2}}));
  ParamList params;
  const NormSpec spec = declare_norm(params, 0, "norm", {.layers = 1, .width = 16});
  b.enter({}, "blocks.3.attention.");
  const ValueId term = b.value("y", DType::f32, {4, 16}, Placement::kPartial);
  EXPECT_THAT(error_of([&] { norm(b, term, spec); }),
              testing::AllOf(HasSubstr("norm: blocks.3.attention.y"), HasSubstr("a sum that is still due")));
}

ModelConfig three_blocks() { return test::small_llama(3).resolved(); }

// The calls of the store in a section, such as "prefetch 1".
std::vector<std::string> store_calls(const Program& program, size_t begin, size_t end) {
  std::vector<std::string> calls;
  for (size_t i = begin; i < end; ++i) {
    const Op& op = program.ops()[i];
    if (op.in.empty() && op.out.empty())
      calls.push_back(fmt::format("{} {}", op.primitive->name(), op.scope.unit));
  }
  return calls;
}

TEST(CallStore, PrefetchesTwoUnitsAheadAwaitsAndReducesEachUnitOnce) {
  const Transformer model(three_blocks(), DType::f32);
  Arena arena("measure");
  const Transformer::Saved saved = model.make_saved(arena, 2, 16);
  const Program& program = *saved.training.program;
  EXPECT_THAT(
      store_calls(program, 0, program.border()),
      ElementsAre("prefetch 0", "prefetch 1", "wait_weights 0", "prefetch 2", "wait_weights 1", "prefetch 3",
                  "wait_weights 2", "prefetch 4", "wait_weights 3", "wait_weights 4", "open_gradients 0"));
  EXPECT_THAT(
      store_calls(program, program.border(), program.ops().size()),
      ElementsAre("wait_weights 4", "open_gradients 4", "start_reduction 4", "prefetch 2", "open_gradients 3",
                  "wait_weights 3", "start_reduction 3", "prefetch 1", "open_gradients 2", "wait_weights 2",
                  "start_reduction 2", "prefetch 0", "open_gradients 1", "wait_weights 1",
                  "start_reduction 1", "open_gradients 0", "start_reduction 0"));
}

// A stage in the middle of a model makes the same calls, whether it exchanges one value with its neighbours
// or several.
TEST(CallStore, MessagesOfSeveralValuesChangeNoCall) {
  const auto calls = [](const ModelConfig& config) {
    const Transformer model(config.resolved(), DType::f32);
    Arena arena("measure");
    const Transformer::Saved saved = model.make_saved(arena, 2, 16, recompute_plan({}, 3), {2, 5});
    const Program& program = *saved.training.program;
    return store_calls(program, 0, program.ops().size());
  };
  const ModelConfig plain = test::small_llama(6);
  EXPECT_THAT(calls(plain), Contains("prefetch 3").Times(2));
  EXPECT_EQ(calls(test::whole_speedrun_style(plain)), calls(plain));
}

// The operations of the backward pass that compute something of the forward pass again, with a mark if they
// belong to a segment that is made again as a whole.
std::vector<std::string> made_again(const RecomputePlan& plan) {
  const Transformer model(three_blocks(), DType::f32);
  Arena arena("measure");
  const Transformer::Saved saved = model.make_saved(arena, 2, 16, plan);
  std::vector<std::string> names;
  for (const Op& op : saved.training.program->ops())
    if (op.cause == Cause::kRecompute || op.cause == Cause::kAgain)
      names.push_back(fmt::format("{} {}{}", op.scope.block, op.primitive->name(),
                                  op.cause == Cause::kRecompute ? " *" : ""));
  return names;
}

TEST(Recompute, MakesAgainWhatThePlanDoesNotKeep) {
  using Part = RecomputePart;
  const auto plan = [](const RecomputeConfig& config) { return recompute_plan(config, 3); };
  EXPECT_THAT(made_again(plan({.policy = RecomputePolicy::kNone})), IsEmpty());
  EXPECT_THAT(made_again(plan({.policy = RecomputePolicy::kSelective, .parts = {Part::kActivation}})),
              ElementsAre("2 swiglu", "1 swiglu", "0 swiglu"));
  EXPECT_THAT(made_again(plan({.policy = RecomputePolicy::kSelective, .parts = {Part::kNorms}})),
              ElementsAre("2 norm", "2 norm", "1 norm", "1 norm", "0 norm", "0 norm"));
  // The last block is kept whole. Another one is made again up to the product before its last one.
  EXPECT_THAT(
      made_again(plan({.policy = RecomputePolicy::kBlock, .parts = {Part::kActivation}})),
      ElementsAre("2 swiglu", "1 norm *", "1 linear *", "1 rotate *", "1 attention *", "1 linear *",
                  "1 dropout *", "1 norm *", "1 linear *", "1 swiglu", "0 norm *", "0 linear *", "0 rotate *",
                  "0 attention *", "0 linear *", "0 dropout *", "0 norm *", "0 linear *", "0 swiglu"));
}

// The memory of a value while operations [begin, end) need it, found from the list alone.
struct Life {
  size_t begin = ~size_t{0}, end = 0;
  bool is_in_slot = false;
  size_t first = 0, last = 0;  // bytes
};

std::vector<Life> lives(const Program& program) {
  std::vector<Life> lives(program.values().size());
  for (size_t i = 0; i < program.ops().size(); ++i)
    for (const std::vector<ValueId>* ids : {&program.ops()[i].in, &program.ops()[i].out})
      for (const ValueId id : *ids) {
        if (id == kNoValue) continue;
        Life& life = lives[static_cast<size_t>(id)];
        life.begin = std::min(life.begin, i);
        life.end = i + 1;
      }
  for (size_t v = 0; v < lives.size(); ++v) {
    const Value& value = program.values()[v];
    const Addresses::Place& place = program.addresses().values[v];
    lives[v].is_in_slot = place.is_in_slot;
    lives[v].first = place.offset;
    lives[v].last = place.offset + static_cast<size_t>(value.shape.elements()) * size_bytes(value.dtype);
  }
  return lives;
}

// Fails for a value that is read before it is written or is written twice, and for two values in the same
// bytes at one time, apart from an output that its operation may write over the input.
void expect_sound(const Program& program, const std::string& name) {
  std::vector<int> writes(program.values().size());
  for (const Op& op : program.ops()) {
    for (const ValueId id : op.in) {
      if (id == kNoValue || writes[static_cast<size_t>(id)] > 0) continue;
      EXPECT_THAT(program.values()[static_cast<size_t>(id)].name, AnyOf("input", "d output"))
          << name << ": " << op.primitive->name() << " reads it before it is written";
    }
    for (const ValueId id : op.out) {
      if (id == kNoValue) continue;
      EXPECT_EQ(writes[static_cast<size_t>(id)]++, 0) << name << ": " << op.primitive->name();
    }
  }
  const std::vector<Life> all = lives(program);
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = a + 1; b < all.size(); ++b) {
      const Life &x = all[a], &y = all[b];
      if (x.is_in_slot != y.is_in_slot || x.first >= y.last || y.first >= x.last) continue;
      const bool meet = x.begin < y.end && y.begin < x.end;
      const bool takes_over = x.end == y.begin + 1 || y.end == x.begin + 1;
      if (!meet) continue;
      EXPECT_TRUE(takes_over) << name << ": " << program.values()[a].name << " and "
                              << program.values()[b].name;
      const Op& op = program.ops()[std::max(x.begin, y.begin)];
      EXPECT_THAT(op.in_place, Not(IsEmpty())) << name << ": " << op.primitive->name();
    }
}

TEST(Addresses, OfValuesThatAreAliveTogetherAreApart) {
  using Policy = RecomputePolicy;
  for (const bool is_gpt2 : {false, true})
    for (const Device device : {Device::kCpu, Device::kCuda})
      for (const Policy policy :
           {Policy::kNone, Policy::kSelective, Policy::kBlock, Policy::kEveryK, Policy::kSqrt}) {
        const ModelConfig config = is_gpt2 ? test::gpt2_style(test::small_llama(5)) : test::small_llama(5);
        const Transformer model(config.resolved(), DType::bf16);
        const RecomputePlan plan = recompute_plan({.policy = policy}, 5);
        Arena arena("measure", memory_of(device));
        const std::string name = fmt::format("{} {} {}", is_gpt2 ? "gpt2" : "llama", static_cast<int>(device),
                                             static_cast<int>(policy));
        const Transformer::Saved saved = model.make_saved(arena, 2, 16, plan);
        expect_sound(*saved.training.program, name);
        expect_sound(*saved.evaluation.program, name);
        RecomputePlan middle = plan;
        middle.blocks = {plan.blocks.begin(), plan.blocks.begin() + 2};
        middle.keeps_embedding = true;
        expect_sound(*model.make_saved(arena, 2, 16, middle, {2, 4}).training.program, name + " stage");
      }
}

TEST(ProgramText, PrintsEqualBlocksOnce) {
  const Transformer model(test::small_llama(6).resolved(), DType::f32);
  Arena arena("measure");
  const Transformer::Saved saved = model.make_saved(arena, 2, 16);
  const std::string text = program_text(*saved.training.program, model.params());
  EXPECT_THAT(text, HasSubstr("blocks up to"));
  EXPECT_THAT(text, HasSubstr("gradient of blocks.5.mlp.down.weight"));
  EXPECT_THAT(text, Not(HasSubstr("gradient of blocks.3.mlp.down.weight")));
  EXPECT_THAT(text, HasSubstr("kept for attention_backward"));
}

}  // namespace
}  // namespace ingot
