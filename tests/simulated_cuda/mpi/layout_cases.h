// Training in a layout on simulated devices, compared with one rank on the CPU.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/parallel/mpi/one_rank_curve.h"
#include "tests/simulated_cuda/mpi/small_run.h"

namespace ingot {

// A config and its layout, which may depend on the number of ranks.
struct DeviceCase {
  const char* name;
  RunConfig config;
  ParallelConfig (*layout)();
};
inline void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }

inline RunConfig on_devices(RunConfig c, const ParallelConfig& layout) {
  c.parallel = layout;
  c.train.device = Device::kCuda;
  return c;
}

struct FirstLosses {
  std::vector<double> losses;  // of the steps and, last, of an evaluation
  int64_t evaluated = 0;       // tokens
};

inline FirstLosses first_losses(Training& run) {
  FirstLosses first{.losses = run.losses(3),
                    .evaluated = 0};  // a pipeline's first step sends through the host
  const EvalResult eval =
      run.trainer.evaluate(run.source, 4 * run.config.train.batch_size * run.config.model.context);
  first.losses.push_back(eval.loss);
  first.evaluated = eval.tokens;
  return first;
}

// Expects the first losses of one CPU rank, and its gradients in training with plain SGD, from the layout in
// `config`.
inline void expect_one_cpu_rank(const RunConfig& config) {
  static std::map<std::string, FirstLosses> known;  // on rank 0
  SCOPED_TRACE(config.parallel.to_string());
  RunConfig alone = config;
  alone.parallel = {};
  alone.train.device = Device::kCpu;
  FirstLosses& want = known[config_toml(alone, ConfigDocs::kNone)];
  if (world->rank() == 0 && want.losses.empty()) {
    Training one(alone);
    want = first_losses(one);
  }
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training together(config, mesh);
  expect_planned_arenas(together, config);
  const FirstLosses got = first_losses(together);
  if (world->rank() == 0) {
    double fall = 0;
    for (const double loss : want.losses) fall = std::max(fall, std::abs(loss - want.losses[0]));
    for (size_t i = 0; i < want.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], want.losses[i], loss_tolerance(config, fall)) << "step " << i;
    EXPECT_EQ(got.evaluated, want.evaluated);
  }
  expect_one_rank_gradients(config);
}

class SimulatedLayout : public ::testing::TestWithParam<DeviceCase> {};

}  // namespace ingot
