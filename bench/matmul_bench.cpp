// GFLOP/s of every product of a training step, per engine: bench_matmul --benchmark_filter=...
#include <benchmark/benchmark.h>

#include <vector>

#include "ingot/core/parallel.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/matmul/matmul_engines.h"

namespace ingot {
namespace {

enum class Engine { kChosen, kPortable, kOneDnn };

void run(benchmark::State& state, MatmulForm form, DType in, DType out, Engine engine) {
  const int64_t M = state.range(0), N = state.range(1), K = state.range(2);
  std::vector<float> a(static_cast<size_t>(M * K)), b(static_cast<size_t>(N * K)),
      c(static_cast<size_t>(M * N));
  const Tensor ta(a.data(), in, form == MatmulForm::kTN ? Shape{K, M} : Shape{M, K});
  const Tensor tb(b.data(), in, form == MatmulForm::kNT ? Shape{N, K} : Shape{K, N});
  const Tensor tc(c.data(), out, {M, N});
  const bool accumulate = form == MatmulForm::kTN;
  Stream stream;
  const MatmulProblem problem{
      form,          accumulate,    in,           out, M, N, K, a.data(), b.data(), c.data(),
      ta.strides[0], tb.strides[0], tc.strides[0]};
  for (auto _ : state) {
    if (engine == Engine::kPortable) portable::matmul(problem, stream);
#ifdef INGOT_WITH_ONEDNN
    if (engine == Engine::kOneDnn) onednn::matmul(problem, stream);
#endif
    if (engine == Engine::kChosen) matmul(tc, ta, tb, form, accumulate, stream);
  }
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(M * N * K),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* b) {
  b->Args({1024, 2304, 768})
      ->Args({1024, 768, 3072})
      ->Args({1024, 768, 50304})
      ->Args({256, 50304, 768})
      ->Args({768, 384, 128})
      ->Args({768, 128, 512});
  b->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(run, f32_NT, MatmulForm::kNT, DType::f32, DType::f32, Engine::kChosen)->Apply(shapes);
BENCHMARK_CAPTURE(run, f32_NT_portable, MatmulForm::kNT, DType::f32, DType::f32, Engine::kPortable)
    ->Apply(shapes);
BENCHMARK_CAPTURE(run, f32_NN, MatmulForm::kNN, DType::f32, DType::f32, Engine::kChosen)->Apply(shapes);
BENCHMARK_CAPTURE(run, f32_TN, MatmulForm::kTN, DType::f32, DType::f32, Engine::kChosen)->Apply(shapes);
BENCHMARK_CAPTURE(run, bf16_NT, MatmulForm::kNT, DType::bf16, DType::bf16, Engine::kChosen)->Apply(shapes);
BENCHMARK_CAPTURE(run, bf16_NN, MatmulForm::kNN, DType::bf16, DType::bf16, Engine::kChosen)->Apply(shapes);
#ifdef INGOT_WITH_ONEDNN
BENCHMARK_CAPTURE(run, bf16_NT_onednn, MatmulForm::kNT, DType::bf16, DType::bf16, Engine::kOneDnn)
    ->Apply(shapes);
BENCHMARK_CAPTURE(run, bf16_NN_onednn, MatmulForm::kNN, DType::bf16, DType::bf16, Engine::kOneDnn)
    ->Apply(shapes);
BENCHMARK_CAPTURE(run, logits_NT_onednn, MatmulForm::kNT, DType::bf16, DType::f32, Engine::kOneDnn)
    ->Apply(shapes);
#endif
BENCHMARK_CAPTURE(run, logits_NT, MatmulForm::kNT, DType::bf16, DType::f32, Engine::kChosen)->Apply(shapes);
BENCHMARK_CAPTURE(run, bf16_TN, MatmulForm::kTN, DType::bf16, DType::f32, Engine::kChosen)->Apply(shapes);

}  // namespace
}  // namespace ingot

BENCHMARK_MAIN();
