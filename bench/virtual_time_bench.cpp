// Measures how long the simulation of a step takes (plan/schedule_simulation.h): a synthetic job of tensor parallelism
// 8, pipeline 4 and a growing number of replicas, with 20 layers per stage. In the last case, gradients of
// all stages and messages share the racks' uplinks.
#include <benchmark/benchmark.h>

#include "ingot/plan/schedule_simulation.h"
#include "tests/plan/jobs.h"

namespace ingot {
namespace {

void simulated_step(benchmark::State& state) {
  const plan_test::MeshJob mesh{.dp = static_cast<int>(state.range(0)), .micros = state.range(1)};
  const RankPrograms job = plan_test::mesh_job(mesh);
  Hardware hardware = find_hardware("h100-sxm");
  hardware.network.rack_uplink_bytes_per_s = 1e9 * static_cast<double>(state.range(2));
  int64_t operations = 0;
  for (const auto& program : job.programs) operations += std::ssize(program->ops);
  for (auto _ : state) state.counters["step_s"] = simulate_schedule(job, hardware).step_s;
  state.counters["ranks"] = static_cast<double>(job.programs.size());
  state.SetItemsProcessed(state.iterations() * operations);
}
BENCHMARK(simulated_step)
    ->ArgNames({"dp", "micros", "uplink_gb_per_s"})
    ->Args({2, 16, 0})
    ->Args({8, 16, 0})
    ->Args({32, 16, 0})
    ->Args({32, 32, 0})
    ->Args({32, 32, 400})
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace ingot

BENCHMARK_MAIN();
