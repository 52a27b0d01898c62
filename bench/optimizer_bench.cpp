// Bandwidth of each update rule compared with a parallel memcpy: bytes per second, counting each byte read
// or written once. Parameters are larger than the caches; with a bf16 copy, they are cast in the same pass.
// "of copy" is the fraction of the bandwidth of a copy measured just before.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ingot/core/arena.h"
#include "ingot/core/parallel.h"
#include "ingot/optim/optimizer.h"
#include "ingot/optim/rules/all_rules.h"
#include "ingot/optim/rules/rule_list.h"

namespace ingot {
namespace {

constexpr int64_t kRows = 8192, kColumns = 4096, kN = kRows * kColumns;  // 128 MiB of f32 per tensor

// Fills t with values other than zero: zeros run faster on some processors, and denormals slower.
void fill(const Tensor& t, float size) {
  parallel_for(t.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) t.as<float>()[i] = size * static_cast<float>(i % 61 - 30.5) / 61;
  });
}

// Returns the bytes per second of the fastest of several 128 MiB copies; read and written bytes both count.
double copy_bytes_per_s(const Tensor& to, const Tensor& from) {
  double best_s = 1e9;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(from.elements(), 1 << 16, [&](int64_t begin, int64_t end) {
      std::memcpy(to.as<float>() + begin, from.as<float>() + begin,
                  static_cast<size_t>(end - begin) * sizeof(float));
    });
    best_s =
        std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2 * static_cast<double>(from.bytes()) / best_s;
}

// Bytes that a step moves: w, g and the state are read and written, the copy is written. Adafactor reads w
// and g once more for its sums, and g once more for the size of its update.
size_t step_bytes(const Optimizer& optimizer, const std::string& kind, bool has_copy) {
  const size_t per_param = 16 + (has_copy ? 2 : 0) + (kind == "adafactor" ? 12 : 0);
  return static_cast<size_t>(kN) * per_param + 2 * optimizer.state_bytes();
}

void BM_Step(benchmark::State& state, const std::string& kind, bool has_copy, bool wants_stats) {
  Arena arena("bench", static_cast<size_t>(kN) * 10 + 4 * Arena::kAlign);
  const Tensor w = arena.alloc(DType::f32, {kN}), g = arena.alloc(DType::f32, {kN});
  const Tensor compute = has_copy ? arena.alloc(DType::bf16, {kN}) : Tensor{};
  fill(w, 1);
  fill(g, 0.1f);
  OptimizerConfig config{.lr = 1e-6, .rule = {.kind = kind}};
  config.rule.options.set(&Momentum::Options::momentum_warmup, 0);
  Optimizer optimizer(config,
                      {{.name = "w", .shape = {kRows, kColumns}, .w = w, .compute = compute, .g = g}});
  Stream stream;
  optimizer.step({.lr = 1e-6}, 1, stream);  // touches the state's pages
  fill(g, 0.1f);
  const double copy = copy_bytes_per_s(g, w);
  fill(g, 0.1f);
  double best_s = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    optimizer.step({.lr = 1e-6, .wants_stats = wants_stats}, 1, stream);
    best_s =
        std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const auto bytes = static_cast<double>(step_bytes(optimizer, kind, has_copy));
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
  state.counters["bytes/param"] = bytes / static_cast<double>(kN);
  state.counters["best_GB/s"] = bytes / best_s * 1e-9;
  state.counters["copy_GB/s"] = copy * 1e-9;
  state.counters["of_copy"] = bytes / best_s / copy;
}

// Muon is bound by its products: five iterations of 4 s^2 l + 2 s^3 operations, where s and l are the
// matrix's sides.
void BM_Muon(benchmark::State& state, DType iteration) {
  constexpr int64_t kLong = 3072, kShort = 768;
  Arena arena("bench", static_cast<size_t>(kLong * kShort) * 8 + 2 * Arena::kAlign);
  const Tensor w = arena.alloc(DType::f32, {kLong * kShort}), g = arena.alloc(DType::f32, {kLong * kShort});
  fill(w, 1);
  OptimizerConfig config{
      .lr = 1e-6, .rule = {.kind = "muon", .options = {{&Muon::Options::newton_schulz_dtype, iteration}}}};
  Optimizer optimizer(config, {{.name = "w", .shape = {kLong, kShort}, .w = w, .g = g}});
  Stream stream;
  for (auto _ : state) {
    state.PauseTiming();
    fill(g, 0.1f);
    state.ResumeTiming();
    optimizer.step({.lr = 1e-6}, 1, stream);
  }
  const double flops = 5.0 * kShort * kShort * (4.0 * kLong + 2.0 * kShort);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void register_all() {
  for (const DType iteration : {DType::f32, DType::bf16})
    benchmark::RegisterBenchmark(fmt::format("muon 3072 x 768/{}", name(iteration)).c_str(), BM_Muon,
                                 iteration)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  for (const RuleEntry& entry : rules()) {
    if (entry.is_matrix_rule) continue;
    for (const bool has_copy : {false, true}) {
      const std::string name = fmt::format("step/{}{}", entry.name, has_copy ? "/bf16_copy" : "");
      benchmark::RegisterBenchmark(name.c_str(), BM_Step, std::string(entry.name), has_copy, false)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RegisterBenchmark("step/adamw/stats", BM_Step, std::string("adamw"), false, true)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  ingot::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
