#include "ingot/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ingot/core/parallel.h"
#include "tests/optim/optimizer_fixture.h"
#include "tests/reference/error_of.h"
#include "tests/reference/optimizers.h"

namespace ingot::test {
namespace {

using ::testing::HasSubstr;

// A fused matrix of several blocks with a partial last one, a plain matrix, an embedding table and two
// vectors. Muon takes only the two matrices.
Params model(bool has_copies = false) {
  Params params;
  params.add("blocks.0.attention.qkv.weight", ParamRole::kMatrix, {330, 129}, has_copies);
  params.list.back().fused_rows = {110, 110, 110};
  params.add("blocks.0.mlp.down.weight", ParamRole::kMatrix, {65, 67}, has_copies);
  params.add("embedding.weight", ParamRole::kEmbedding, {257, 31}, has_copies);
  params.add("blocks.0.mlp.norm.weight", ParamRole::kNorm, {129});
  params.add("blocks.0.mlp.down.bias", ParamRole::kBias, {5000});
  return params;
}

// Uses the rule for every parameter it can take, and AdamW for the rest.
OptimizerConfig config_of(const std::string& kind) {
  OptimizerConfig config{.lr = 0.01, .rule = {.kind = kind}};
  if (rule_entry(kind).is_matrix_rule) {
    config.rule.kind = "adamw";
    config.groups = {{.roles = {ParamRole::kMatrix}, .rule = {.kind = kind}}};
  }
  if (kind == "muon") config.groups[0].rule.options.set(&Muon::Options::normuon, true);
  return config;
}

class EachRule : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Rules, EachRule, ::testing::ValuesIn(all_kinds()),
                         [](const auto& info) { return info.param; });

TEST_P(EachRule, UpdatesEveryWeightAndClearsItsGradient) {
  Params params = model(true);
  const std::vector<Doubles> before = params.weights();
  Optimizer optimizer(config_of(GetParam()), params.list);
  Stream stream;
  params.draw_gradients(1);
  optimizer.step({.lr = 0.01}, 0.5f, stream);
  EXPECT_EQ(optimizer.t(), 1);
  for (size_t i = 0; i < params.list.size(); ++i) {
    const OptimParam& p = params.list[i];
    for (double g : to_doubles(p.g)) ASSERT_EQ(g, 0);
    const Doubles after = to_doubles(p.w);
    int64_t moved = 0;
    for (size_t k = 0; k < after.size(); ++k) moved += after[k] != before[i][k];
    EXPECT_GT(moved, std::ssize(after) * 99 / 100) << p.name;
    if (!p.compute) continue;
    for (int64_t k = 0; k < p.elements(); ++k)
      ASSERT_EQ(p.compute.as<bf16>()[k].bits, bf16(p.w.as<float>()[k]).bits) << p.name;
  }
}

TEST_P(EachRule, KeepsGradientsThatTheNextStepOverwrites) {
  Params kept = model(), zeroed = model();
  for (OptimParam& p : kept.list) p.keeps_g = p.is_matrix();
  Stream stream;
  for (Params* params : {&kept, &zeroed}) {
    Optimizer optimizer(config_of(GetParam()), params->list);
    params->draw_gradients(1);
    optimizer.step({.lr = 0.01}, 0.5f, stream);
  }
  EXPECT_EQ(kept.weights(), zeroed.weights());
  zeroed.draw_gradients(1);
  for (size_t i = 0; i < kept.list.size(); ++i) {
    const Doubles drawn = to_doubles(zeroed.list[i].g), left = to_doubles(kept.list[i].g);
    EXPECT_EQ(left, kept.list[i].keeps_g ? drawn : Doubles(drawn.size())) << kept.list[i].name;
  }
}

TEST_P(EachRule, BitsDoNotDependOnThreads) {
  const int threads = num_threads();
  std::vector<std::vector<Doubles>> weights;
  std::vector<std::vector<std::string>> states;
  std::vector<std::vector<ParamStats>> stats;
  std::vector<double> norms;
  for (int n : {1, 2, 3}) {
    set_num_threads(n);
    Params params = model();
    Optimizer optimizer(config_of(GetParam()), params.list);
    Stream stream;
    for (int t = 1; t <= 3; ++t) {
      params.draw_gradients(t);
      norms.push_back(optimizer.grad_norm(stream));
      optimizer.step({.lr = 0.01, .wants_stats = true}, 0.5f, stream);
    }
    weights.push_back(params.weights());
    states.push_back(state_contents(optimizer));
    stats.emplace_back(optimizer.stats().begin(), optimizer.stats().end());
  }
  set_num_threads(threads);
  for (size_t i : {1u, 2u}) {
    EXPECT_TRUE(weights[i] == weights[0]);
    EXPECT_TRUE(states[i] == states[0]);
    EXPECT_EQ(norms[3 * i + 2], norms[2]);
    for (size_t p = 0; p < stats[0].size(); ++p) EXPECT_EQ(stats[i][p].update_norm, stats[0][p].update_norm);
  }
}

// The last 16 of 64 rows are also on another rank, which counts them.
TEST_P(EachRule, CopiesOnAnotherRankCountInNoNormAndNoStatistic) {
  constexpr int64_t kRows = 64, kOwn = 48, C = 67;
  const std::vector<Rect> rects{{.row = 0, .rows = kOwn, .column = 0, .columns = C},
                                {.row = kOwn, .rows = kRows - kOwn, .column = 0, .columns = C}};
  Params shard;
  shard.add("w", ParamRole::kMatrix, {kRows, C});
  OptimParam& param = shard.list[0];
  param.shape = {1, kRows * C};
  param.logical = {kRows, C};
  param.rects = rects;
  param.is_scattered = true;
  param.copies = (kRows - kOwn) * C;
  Optimizer optimizer(config_of(GetParam()), shard.list);
  Stream stream;
  shard.draw_gradients(1);
  const auto norm_of = [&](const Doubles& x) {
    const Doubles own(x.begin(), x.begin() + kOwn * C);
    return std::sqrt(dot(own, own));
  };
  const Doubles before = to_doubles(param.w), gradient = to_doubles(param.g);
  const double tolerance = 4096 * unit_roundoff(DType::f32);
  EXPECT_NEAR(optimizer.grad_norm(stream), norm_of(gradient), tolerance * norm_of(gradient));
  optimizer.step({.lr = 0.01, .wants_stats = true}, 1, stream);
  Doubles change = to_doubles(param.w);
  for (size_t i = 0; i < change.size(); ++i) change[i] -= before[i];
  const ParamStats& stats = optimizer.stats()[0];
  EXPECT_NEAR(stats.weight_norm, norm_of(before), tolerance * norm_of(before));
  EXPECT_NEAR(stats.grad_norm, norm_of(gradient), tolerance * norm_of(gradient));
  EXPECT_NEAR(stats.update_norm, norm_of(change), tolerance * norm_of(change));
}

// A new optimizer with a bit-exact copy of the state continues bit-identically.
TEST_P(EachRule, ContinuesExactlyFromItsState) {
  Params whole = model(), parts = model();
  Optimizer want(config_of(GetParam()), whole.list);
  auto first = std::make_unique<Optimizer>(config_of(GetParam()), parts.list);
  Stream stream;
  for (int t = 1; t <= 6; ++t) {
    whole.draw_gradients(t);
    parts.draw_gradients(t);
    want.step({.lr = 0.01}, 1, stream);
    first->step({.lr = 0.01}, 1, stream);
    if (t != 3) continue;
    auto second = std::make_unique<Optimizer>(config_of(GetParam()), parts.list);
    ASSERT_EQ(second->states().size(), first->states().size());
    for (size_t s = 0; s < first->states().size(); ++s) {
      ASSERT_EQ(second->states()[s].name, first->states()[s].name);
      std::memcpy(second->states()[s].tensor.data, first->states()[s].tensor.data,
                  first->states()[s].tensor.bytes());
    }
    second->set_t(first->t());
    first = std::move(second);
  }
  EXPECT_TRUE(parts.weights() == whole.weights());
  EXPECT_TRUE(state_contents(*first) == state_contents(want));
}

TEST_P(EachRule, StatisticsAreRightAndChangeNoBit) {
  Params plain = model(), measured = model();
  Optimizer without(config_of(GetParam()), plain.list), with(config_of(GetParam()), measured.list);
  Stream stream;
  for (int t = 1; t <= 2; ++t) {
    plain.draw_gradients(t);
    measured.draw_gradients(t);
    const std::vector<Doubles> before = measured.weights();
    std::vector<Doubles> gradients;
    for (const OptimParam& p : measured.list) gradients.push_back(to_doubles(p.g));
    without.step({.lr = 0.01}, 0.5f, stream);
    with.step({.lr = 0.01, .wants_stats = true}, 0.5f, stream);
    const std::vector<Doubles> after = measured.weights();
    ASSERT_TRUE(after == plain.weights());
    for (size_t i = 0; i < after.size(); ++i) {
      Doubles change(after[i].size());
      for (size_t k = 0; k < change.size(); ++k) change[k] = after[i][k] - before[i][k];
      const ParamStats& stats = with.stats()[i];
      const double weights = std::sqrt(dot(before[i], before[i])), moved = std::sqrt(dot(change, change));
      // The tolerance is for sums of 2048 f32 terms.
      const double tolerance = 2048 * unit_roundoff(DType::f32);
      EXPECT_EQ(stats.name, measured.list[i].name);
      EXPECT_NEAR(stats.weight_norm, weights, tolerance * weights);
      EXPECT_NEAR(stats.grad_norm, 0.5 * std::sqrt(dot(gradients[i], gradients[i])),
                  tolerance * stats.grad_norm);
      EXPECT_NEAR(stats.update_norm, moved, tolerance * moved);
      EXPECT_NEAR(stats.update_dot_weight, dot(change, before[i]), tolerance * weights * moved);
    }
  }
  EXPECT_EQ(without.stats()[0].weight_norm, 0);
}

// Bytes of state per parameter, the reason to choose a rule.
TEST(OptimizerState, TakesTheBytesThatItsRuleDeclares) {
  const auto bytes = [](const char* kind, const Shape& shape) {
    Params params;
    params.add("w", ParamRole::kMatrix, shape);
    return Optimizer({.lr = 0.01, .rule = {.kind = kind}}, params.list).state_bytes();
  };
  constexpr size_t kR = 96, kC = 160, kN = kR * kC;
  const Shape matrix{kR, kC}, vector{kN};
  EXPECT_EQ(bytes("sgd", matrix), 0u);
  EXPECT_EQ(bytes("momentum", matrix), 4 * kN);
  EXPECT_EQ(bytes("adam", matrix), 8 * kN);
  EXPECT_EQ(bytes("adamw", matrix), 8 * kN);
  EXPECT_EQ(bytes("adafactor", matrix), 4 * (kR + kC));
  EXPECT_EQ(bytes("adafactor", vector), 4 * kN);
  EXPECT_EQ(bytes("lion", matrix), 4 * kN);
  EXPECT_EQ(bytes("adamw8bit", matrix), 2 * kN + 2 * 4 * (kN / 256));
  EXPECT_EQ(bytes("adamw8bit", {4095}), 8u * 4095);
  EXPECT_EQ(bytes("adamw8bit", {4097}), 2u * 4097 + 2 * 4 * 17);
  EXPECT_EQ(bytes("muon", matrix), 4 * kN);
}

TEST(OptimizerState, IsCountedPerParameter) {
  Params params = model();
  const Optimizer optimizer(config_of("muon"), params.list);
  const auto alone = [&](size_t i) { return Optimizer(config_of("muon"), {params.list[i]}).state_bytes(); };
  EXPECT_EQ(alone(0), 4u * 330 * 129 + 4 * (3 * 129));  // NorMuon; q, k and v are wide
  EXPECT_EQ(alone(2), 8u * 257 * 31);
  size_t sum = 0;
  for (size_t i = 0; i < params.list.size(); ++i) sum += alone(i);
  EXPECT_EQ(optimizer.state_bytes(), sum);
  EXPECT_GE(optimizer.arena().capacity_bytes(), sum);
  EXPECT_THAT(optimizer.summary(), HasSubstr("adamw for 3 tensors, muon for 2 tensors"));
}

class AdamWSizes : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AdamWSizes, ::testing::Values(1, 31, 32, 33, 257, 70000));

TEST_P(AdamWSizes, FollowsTheReference) {
  Params params;
  params.add("w", ParamRole::kMatrix, {GetParam(), 1}, true);
  Optimizer optimizer({.lr = 0.01, .rule = {.kind = "adamw"}}, params.list);
  Stream stream;
  std::vector<AdamWElement> want;
  for (double x : to_doubles(params.list[0].w)) want.push_back({x});
  for (int t = 1; t <= 5; ++t) {
    params.draw_gradients(t, 1);
    const Doubles gradient = to_doubles(params.list[0].g);
    optimizer.step({.lr = 0.01}, 0.5f, stream);
    Doubles expected;
    for (size_t i = 0; i < want.size(); ++i) {
      want[i].step(0.5 * gradient[i], 0.01, 0.1, t);
      expected.push_back(want[i].w);
    }
    expect_close(params.list[0].w, expected, t * 16 * unit_roundoff(DType::f32), "w");
  }
}

TEST(Optimizer, NormCoversAllGradients) {
  Params params = model();
  Optimizer optimizer({}, params.list);
  params.draw_gradients(1);
  Stream stream;
  double squares = 0;
  for (const OptimParam& p : params.list) squares += dot(to_doubles(p.g), to_doubles(p.g));
  EXPECT_NEAR(optimizer.grad_norm(stream), std::sqrt(squares), 1e-5 * std::sqrt(squares));
}

TEST(Optimizer, DecaysMatricesAndVectorsOnlyWhereAGroupSaysSo) {
  for (const bool has_group : {false, true}) {
    Params params = model();
    OptimizerConfig config{.lr = 0.01};
    if (has_group)
      config.groups = {
          {.roles = {ParamRole::kNorm}, .rule = {.options = {{&AdamW::Options::weight_decay, 0.2}}}}};
    Optimizer optimizer(config, params.list);
    Stream stream;
    const std::vector<Doubles> before = params.weights();
    optimizer.step({.lr = 0.01}, 1, stream);  // all gradients are zero
    const std::vector<Doubles> after = params.weights();
    for (size_t i = 0; i < before.size(); ++i) {
      const ParamRole role = params.list[i].role;
      const double decay = role == ParamRole::kBias   ? 0
                           : role == ParamRole::kNorm ? (has_group ? 0.2 : 0)
                                                      : 0.1;
      for (size_t k = 0; k < before[i].size(); ++k)
        ASSERT_NEAR(after[i][k], before[i][k] * (1 - 0.01 * decay), 1e-6) << params.list[i].name;
    }
  }
}

// A group's lr keeps its ratio to the base lr under every schedule.
TEST(Optimizer, GroupsHaveTheirOwnLearningRate) {
  Params params = model();
  OptimizerConfig config{.lr = 0.01,
                         .rule = {.kind = "sgd", .options = {{&Sgd::Options::weight_decay, 0.0}}}};
  config.groups = {{.roles = {ParamRole::kMatrix}, .lr = 0.03}, {.match = {"*.bias"}, .lr_scale = 0.5}};
  Optimizer optimizer(config, params.list);
  Stream stream;
  for (const OptimParam& p : params.list) assign(p.g, Doubles(static_cast<size_t>(p.elements()), 1.0));
  const std::vector<Doubles> before = params.weights();
  optimizer.step({.lr = 0.002}, 1, stream);
  const std::vector<Doubles> after = params.weights();
  const double want[] = {0.006, 0.006, 0.002, 0.002, 0.001};
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(before[i][3] - after[i][3], want[i], 4 * unit_roundoff(DType::f32)) << params.list[i].name;
}

// A scheduled momentum replaces the momentum of Muon and SGD if the optimizer has either, else beta1.
TEST(Optimizer, ScheduledMomentumReplacesTheConfigured) {
  const auto run = [](const OptimizerConfig& config, std::optional<double> momentum) {
    Params params = model();
    Optimizer optimizer(config, params.list);
    Stream stream;
    for (int t = 1; t <= 2; ++t) {
      params.draw_gradients(t);
      optimizer.step({.lr = 0.01, .momentum = momentum}, 1, stream);
    }
    return params.weights();
  };
  OptimizerConfig adamw = config_of("adamw"), slower = adamw;
  slower.rule.options.set(&AdamW::Options::beta1, 0.5);
  EXPECT_TRUE(run(adamw, 0.5) == run(slower, {}));
  EXPECT_FALSE(run(adamw, 0.5) == run(adamw, {}));
  // In a run with Muon and AdamW, only Muon, the rule of the matrices, takes the momentum; beta1 stays.
  OptimizerConfig muon = config_of("muon"), fixed = muon;
  fixed.groups[0].rule.options.set(&Muon::Options::momentum, 0.5);
  fixed.groups[0].rule.options.set(&Muon::Options::momentum_warmup, 0);
  EXPECT_TRUE(run(muon, 0.5) == run(fixed, {}));
  EXPECT_FALSE(run(muon, 0.5) == run(muon, {}));
}

TEST(Optimizer, MomentumWarmsUpLinearly) {
  const auto run = [](const RuleConfig& rule, std::vector<double> momenta) {
    Params params = model();
    Optimizer optimizer({.lr = 0.01, .rule = rule}, params.list);
    Stream stream;
    for (int t = 1; t <= 4; ++t) {
      params.draw_gradients(t);
      StepInputs inputs{.lr = 0.01};
      if (!momenta.empty()) inputs.momentum = momenta[static_cast<size_t>(t - 1)];
      optimizer.step(inputs, 1, stream);
    }
    return params.weights();
  };
  const RuleConfig rule{.kind = "momentum",
                        .options = {{&Momentum::Options::momentum, 0.9},
                                    {&Momentum::Options::momentum_start, 0.5},
                                    {&Momentum::Options::momentum_warmup, 2}}};
  EXPECT_TRUE(run(rule, {}) == run(rule, {0.5, 0.7, 0.9, 0.9}));
}

std::string refusal(const OptimizerConfig& config) {
  return usage_error([&] {
    Params params = model();
    config.validate();
    const Optimizer optimizer(config, params.list);
  });
}

TEST(Optimizer, RefusesInvalidOptions) {
  EXPECT_THAT(refusal({.lr = 0}), HasSubstr("optimizer.lr must be above 0, got 0"));
  EXPECT_THAT(refusal({.grad_clip = -1}), HasSubstr("optimizer.grad_clip must not be negative"));
  EXPECT_THAT(refusal({.rule = {.kind = "adamw", .options = {{&AdamW::Options::beta2, 1.0}}}}),
              HasSubstr("optimizer.beta2 must lie in [0, 1), got 1"));
  EXPECT_THAT(refusal({.rule = {.kind = "muon"}}),
              HasSubstr("muon takes matrices, and blocks.0.mlp.norm.weight is a vector"));
  EXPECT_THAT(refusal({.groups = {{}}}), HasSubstr("optimizer.group 1: roles or match must say"));
  EXPECT_THAT(refusal({.groups = {{.match = {"blocks.*.atn.*"}}}}),
              HasSubstr("optimizer.group 1: match \"blocks.*.atn.*\" fits no parameter"));
  EXPECT_THAT(refusal({.groups = {{.match = {"*"}, .lr = 1.0, .lr_scale = 1.0}}}), HasSubstr("both given"));
  EXPECT_THAT(refusal({.groups = {{.match = {"*"}, .rule = {.options = {{&AdamW::Options::eps, 0.0}}}}}}),
              HasSubstr("optimizer.group 1: eps must be above 0"));
  EXPECT_THAT(
      refusal({.groups = {{.match = {"*"},
                           .rule = {.kind = "lion", .options = {{&Momentum::Options::momentum, 0.9}}}}}}),
      HasSubstr("optimizer.group 1: momentum is no key of lion, which reads beta1, beta2, weight_decay"));
  EXPECT_EQ(refusal({.groups = {{.roles = {ParamRole::kHead}, .lr = 1.0}}}),
            "no error");  // a tied head is not an error
}

}  // namespace
}  // namespace ingot::test
