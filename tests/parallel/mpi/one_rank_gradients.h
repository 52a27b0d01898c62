// Compares training with plain SGD in a layout, on the CPU or on devices, with the same training on one CPU
// rank. AdamW, Lion, Adafactor and Muon make the same updates from gradients that are too large by a constant
// factor, so their losses do not show one; SGD without clipping moves by the factor, and here gradients and
// norms are compared themselves.
#pragma once

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/core/staging.h"
#include "tests/parallel/mpi/ranks_fixture.h"
#include "tests/train/gradient_tolerance.h"
#include "tests/train/gradients.h"

namespace ingot {

struct SgdStep {
  double loss = 0, norm = 0;
  std::map<std::string, std::vector<float>> gradients;  // of whole parameters, by name
};

// In a layout all ranks call it, and each gets the gradients of the whole model.
inline SgdStep sgd_step(Training& run) {
  Trainer& trainer = run.trainer;
  const StepResult result =
      gradients(trainer, run.loader, run.config.train.grad_accum, {.lr = run.config.optimizer.lr});
  SgdStep step{.loss = result.loss, .norm = result.grad_norm, .gradients = {}};
  TrainingStore& params = trainer.params();
  Staging staging;
  std::vector<std::vector<float>> values;
  for (const ParamShard& shard : params.shards()) {
    const Tensor g = staging.read(shard.grad, *trainer.layout().stream);
    values.emplace_back(g.as<float>(), g.as<float>() + g.elements());
  }
  if (trainer.layout().mesh->world->size() > 1) values = assembled(params, values);
  const std::vector<ParamShard> shards = params.shards();
  for (size_t i = 0; i < values.size(); ++i) {
    for (float& value : values[i]) value *= static_cast<float>(result.grad_correction);
    step.gradients[params.list()[shards[i].id].name] = std::move(values[i]);
  }
  trainer.update(result);
  spoil_old_gradients(trainer);
  return step;
}

// Returns |got - want| / size, by default the size of `want`; 0 if both are equal.
inline double relative_error(const std::vector<float>& got, const std::vector<float>& want, double size = 0) {
  double errors = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = static_cast<double>(want[i]), error = static_cast<double>(got[i]) - w;
    errors += error * error;
    squares += w * w;
  }
  return errors == 0 ? 0 : std::sqrt(errors) / (size > 0 ? size : std::sqrt(squares));
}

// A scalar's gradient is a sum over all rows in which most terms cancel, so its own size does not tell that
// of its roundings. The size of all scalars of the model does: their sums have terms of one kind, and cancel
// to different degrees.
inline constexpr double kScalarTerms = 32;

inline double size_of_scalars(const SgdStep& step) {
  double squares = 0;
  for (const auto& [name, gradient] : step.gradients)
    if (gradient.size() == 1) squares += std::pow(static_cast<double>(gradient[0]), 2);
  return std::sqrt(squares);
}

// Says what differs by more than a tolerance; "" if nothing does. Every gradient and the norm are
// compared by themselves.
inline std::string difference(const SgdStep& got, const SgdStep& want, double tolerance) {
  std::string text;
  const auto compare = [&](const std::string& what, const std::vector<float>& a,
                           const std::vector<float>& b) {
    const bool is_scalar = what != "the norm" && b.size() == 1;
    const double size = is_scalar ? size_of_scalars(want) : 0;
    const double error = a.size() == b.size() ? relative_error(a, b, size) : HUGE_VAL;
    const double allowed = is_scalar ? kScalarTerms * tolerance : tolerance;
    if (!(error <= allowed))
      text += fmt::format("{} differs by {:.3g} of its size, more than {:.3g}\n", what, error, allowed);
  };
  compare("the norm", {static_cast<float>(got.norm)}, {static_cast<float>(want.norm)});
  for (const auto& [name, gradient] : want.gradients) {
    const auto found = got.gradients.find(name);
    compare(name, found == got.gradients.end() ? std::vector<float>{} : found->second, gradient);
  }
  return text;
}

// Expects that a gradient of any one parameter is reported if it is multiplied by 0, by 2 or by the number of
// ranks.
inline void expect_planted_factors_are_found(const SgdStep& got, const SgdStep& want, double tolerance) {
  for (const int factor : {0, 2, world->size()}) {
    if (factor == 1) continue;
    const auto expect_found = [&](const SgdStep& planted, const SgdStep& right, const std::string& what) {
      EXPECT_THAT(difference(planted, right, tolerance), ::testing::HasSubstr(what + " differs"))
          << "times " << factor;
    };
    expect_found({.norm = factor * got.norm, .gradients = {}}, {.norm = want.norm, .gradients = {}},
                 "the norm");
    SgdStep scalars{.norm = want.norm, .gradients = {}};  // a scalar is compared with all others
    for (const auto& [name, gradient] : want.gradients)
      if (gradient.size() == 1) scalars.gradients[name] = gradient;
    for (const auto& [name, gradient] : want.gradients) {
      SgdStep right = scalars;
      right.gradients[name] = gradient;
      SgdStep planted = right;
      planted.gradients[name] = got.gradients.at(name);
      for (float& value : planted.gradients[name]) value *= static_cast<float>(factor);
      expect_found(planted, right, name);
    }
  }
}

// The second step has the weights that the first moved, and in it a pipeline on devices no longer sends
// through the host.
inline constexpr int kSgdSteps = 2;

// Expects the losses, norms and gradients of one CPU rank from the model, layout and device of `config`, with
// plain SGD in place of its rules. A layout is trained once for all rules.
inline void expect_one_rank_gradients(RunConfig config) {
  static std::set<std::string> compared;
  static std::map<std::string, std::vector<SgdStep>> known;  // on rank 0
  config.optimizer = {.lr = 0.5, .grad_clip = 0, .rule = {.kind = "sgd"}};
  config.optimizer.rule.options.set(&Sgd::Options::weight_decay, 0.0);
  config.precision.loss_scale.init = 1024;  // nothing overflows
  config.parallel.muon_payload = ParallelConfig{}.muon_payload;
  if (!compared.insert(config_toml(config, ConfigDocs::kNone)).second) return;
  SCOPED_TRACE("SGD, " + config.parallel.to_string());
  RunConfig alone = config;
  alone.parallel = {};
  alone.train.device = Device::kCpu;
  std::vector<SgdStep>& want = known[config_toml(alone, ConfigDocs::kNone)];
  if (world->rank() == 0 && want.empty()) {
    Training one(alone);
    for (int i = 0; i < kSgdSteps; ++i) want.push_back(sgd_step(one));
  }
  const double tolerance = gradient_tolerance(config);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training together(config, mesh);
  for (size_t i = 0; i < kSgdSteps; ++i) {
    const SgdStep got = sgd_step(together);
    if (world->rank() > 0) continue;
    EXPECT_NEAR(got.loss, want[i].loss, loss_tolerance(config, std::abs(want[1].loss - want[0].loss)))
        << "step " << i;
    EXPECT_EQ(difference(got, want[i], tolerance), "") << "step " << i;
    expect_planted_factors_are_found(got, want[i], tolerance);
  }
}

}  // namespace ingot
