// Compares ten steps of every rule that PyTorch has with PyTorch's own, and Muon also with its formula in
// double. tools/export_optimizer_golden.py writes the files and documents their contents.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/formats/safetensors.h"
#include "tests/optim/optimizer_fixture.h"
#include "tests/reference/optimizers.h"

namespace ingot::test {
namespace {

using Json = nlohmann::json;

struct Trajectory {
  const char* name;  // name in the file
  const char* kind;
  GivenOptions options;
  double factor;  // tolerance as a multiple of PyTorch's own rounding error
};

// Our roundings come in another order than PyTorch's; their number is about the same.
constexpr double kRounding = 10;
// Ours and PyTorch's are two bf16 iterations, each about as far from the exact one.
constexpr double kTwoBf16 = 2;

std::vector<Trajectory> trajectories() {
  using Heavy = Momentum::Options;
  const GivenOptions muon{{&Muon::Options::weight_decay, 0.1},
                          {&Muon::Options::momentum, 0.95},
                          {&Muon::Options::momentum_warmup, 0},
                          {&Muon::Options::nesterov, true},
                          {&Muon::Options::newton_schulz_dtype, DType::f32}};
  GivenOptions polar = muon, normuon = muon, bf16 = muon;
  polar.set(&Muon::Options::newton_schulz, NewtonSchulzKind::kPolarExpress);
  normuon.set(&Muon::Options::normuon, true);
  normuon.set(&Muon::Options::cautious_decay, true);
  bf16.set(&Muon::Options::newton_schulz_dtype, DType::bf16);
  const GivenOptions heavy{{&Heavy::weight_decay, 0.05}, {&Heavy::momentum, 0.9}};
  GivenOptions nesterov = heavy;
  nesterov.set(&Heavy::nesterov, true);
  return {
      {"sgd", "sgd", {{&Sgd::Options::weight_decay, 0.05}}, kRounding},
      {"momentum", "momentum", heavy, kRounding},
      {"nesterov", "momentum", nesterov, kRounding},
      {"adam", "adam", {{&Adam::Options::beta2, 0.95}, {&Adam::Options::weight_decay, 0.05}}, kRounding},
      {"adamw", "adamw", {{&AdamW::Options::beta2, 0.95}, {&AdamW::Options::weight_decay, 0.1}}, kRounding},
      {"adafactor", "adafactor", {{&Adafactor::Options::weight_decay, 0.1}}, kRounding},
      {"adafactor_unclipped",
       "adafactor",
       {{&Adafactor::Options::weight_decay, 0.1}, {&Adafactor::Options::update_clip, 100}},
       kRounding},
      {"muon", "muon", muon, kRounding},
      {"muon_polar", "muon", polar, kRounding},
      {"muon_normuon", "muon", normuon, kRounding},
      {"muon_torch", "muon", bf16, kTwoBf16},
  };
}

class OptimizerGolden : public ::testing::Test {
 protected:
  std::string folder = std::string(INGOT_TEST_DATA) + "/optim/";
  SafetensorsFile values{folder + "trajectories.safetensors"};
  Json facts = Json::parse(std::ifstream(folder + "trajectories.json"));

  Doubles numbers(const std::string& name) const {
    const SafetensorsEntry& entry = values.get(name);
    std::vector<float> floats(static_cast<size_t>(entry.elements()));
    std::memcpy(floats.data(), entry.bytes.data(), entry.bytes.size());
    return {floats.begin(), floats.end()};
  }
};

TEST_F(OptimizerGolden, TenStepsEqualTheOracle) {
  const std::map<std::string, Shape> shapes{{"wide", {6, 10}}, {"tall", {10, 6}}, {"vector", {7}}};
  for (const Trajectory& run : trajectories()) {
    const double base_lr = facts["runs"][run.name]["lr"];
    const double tolerance = run.factor * facts["runs"][run.name]["rounding"].get<double>();
    for (const auto& [shape_name, shape] : shapes) {
      const std::string key = std::string(run.name) + "." + shape_name;
      if (!values.find(key)) continue;  // the file has no vectors for Muon
      Params params;
      params.add(shape_name, ParamRole::kMatrix, shape);
      const Tensor w = params.list[0].w, g = params.list[0].g;
      assign(w, numbers("initial." + shape_name));
      // As in PyTorch, a group's own decay also applies to vectors.
      OptimizerConfig config{.lr = base_lr};
      config.groups = {{.match = {"*"}, .rule = {.kind = run.kind, .options = run.options}}};
      Optimizer optimizer(config, params.list);
      Stream stream;
      const Doubles gradients = numbers("gradients." + shape_name), want = numbers(key);
      const size_t n = static_cast<size_t>(shape.elements());
      for (size_t t = 0; t < 10; ++t) {
        assign(g, Doubles(gradients.begin() + static_cast<std::ptrdiff_t>(t * n),
                          gradients.begin() + static_cast<std::ptrdiff_t>((t + 1) * n)));
        const double multiplier = facts["lr_multipliers"][t];
        optimizer.step({.lr = base_lr * multiplier}, 1, stream);
        const Doubles got = to_doubles(w);
        for (size_t i = 0; i < n; ++i)
          ASSERT_NEAR(got[i], want[t * n + i], tolerance) << key << " step " << t << " element " << i;
      }
    }
  }
}

TEST(LionTrajectory, FollowsTheReference) {
  Params params;
  params.add("w", ParamRole::kMatrix, {31, 17});
  OptimizerConfig config{.lr = 0.01,
                         .rule = {.kind = "lion", .options = {{&Lion::Options::weight_decay, 0.5}}}};
  Optimizer optimizer(config, params.list);
  Stream stream;
  std::vector<LionElement> want;
  for (double x : to_doubles(params.list[0].w)) want.push_back({x});
  for (int t = 1; t <= 10; ++t) {
    params.draw_gradients(t);
    params.list[0].g.as<float>()[5] = 0;  // sign(0) is 0
    const Doubles g = to_doubles(params.list[0].g);
    optimizer.step({.lr = 0.01 * t}, 0.5f, stream);
    Doubles expected;
    for (size_t i = 0; i < want.size(); ++i) {
      want[i].step(0.5 * g[i], 0.01 * t, 0.5);
      expected.push_back(want[i].w);
    }
    expect_close(params.list[0].w, expected, t * 4 * unit_roundoff(DType::f32), "w");
  }
  EXPECT_EQ(optimizer.states()[0].name, "m.w");
}

}  // namespace
}  // namespace ingot::test
