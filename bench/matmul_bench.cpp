// GFLOP/s of every product of a training step, per engine, and GB/s of the weights in the products of a
// generated token, beside a copy: bench_matmul --benchmark_filter=...
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/parallel.h"
#include "ingot/ops/int8_matrix.h"
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

// The products of one generated token at GPT-2 124M, each with weights of its own, so that they come from
// memory.
constexpr int64_t kLayers = 12;
constexpr std::array<std::array<int64_t, 2>, 4> kLayerShapes{
    {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}}};
constexpr std::array<int64_t, 2> kHeadShape{50304, 768};

int64_t token_weights() {
  int64_t n = kHeadShape[0] * kHeadShape[1];
  for (const auto& [N, K] : kLayerShapes) n += kLayers * N * K;
  return n;
}

void set_bandwidth(benchmark::State& state, int64_t bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(1e-9 * static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate);
}

// GB/s of the weights that are read.
void token(benchmark::State& state, DType dtype, Engine engine) {
  const int64_t bytes = token_weights() * static_cast<int64_t>(size_bytes(dtype));
  Arena arena("weights", static_cast<size_t>(bytes));  // in huge pages, as those of a model
  std::byte* const weights = static_cast<std::byte*>(arena.alloc(DType::u8, {bytes}).data);
  std::memset(weights, 0, static_cast<size_t>(bytes));
  std::vector<float> x(4096), y(static_cast<size_t>(kHeadShape[0]));
  Stream stream;
  for (auto _ : state) {
    std::byte* w = weights;
    const auto product = [&](const std::array<int64_t, 2>& shape, DType out) {
      const auto [N, K] = shape;
      const Tensor a(x.data(), dtype, {1, K}), b(w, dtype, {N, K}), c(y.data(), out, {1, N});
#ifdef INGOT_WITH_ONEDNN
      if (engine == Engine::kOneDnn) onednn::matmul(matmul_problem(c, a, b, MatmulForm::kNT, false), stream);
#endif
      if (engine == Engine::kChosen) matmul(c, a, b, MatmulForm::kNT, false, stream);
      w += b.bytes();
    };
    for (int64_t l = 0; l < kLayers; ++l)
      for (const auto& shape : kLayerShapes) product(shape, dtype);
    product(kHeadShape, DType::f32);
  }
  set_bandwidth(state, bytes);
}

// GB/s of the codes and scales that the products of `token` read from 8-bit weights, with x in bf16.
void token_int8(benchmark::State& state) {
  std::vector<Int8Matrix> weights;
  const auto lay_out = [&](Arena& arena) {
    weights.clear();
    for (int64_t l = 0; l < kLayers; ++l)
      for (const auto& [N, K] : kLayerShapes) weights.push_back(alloc_int8(arena, N, K));
    weights.push_back(alloc_int8(arena, kHeadShape[0], kHeadShape[1]));
  };
  Arena plan("plan");
  lay_out(plan);
  Arena arena("weights", plan.peak_bytes());
  lay_out(arena);
  int64_t bytes = 0;
  for (const Int8Matrix& w : weights) {
    std::memset(w.codes.data, 1, w.codes.bytes());
    std::memset(w.scales.data, 0, w.scales.bytes());
    bytes += static_cast<int64_t>(w.codes.bytes() + w.scales.bytes());
  }
  std::vector<float> x(4096), y(static_cast<size_t>(kHeadShape[0]));
  std::vector<uint8_t> memory(static_cast<size_t>(int8_room_bytes(4096, DType::bf16)));
  const Tensor room(memory.data(), DType::u8, {std::ssize(memory)});
  Stream stream;
  for (auto _ : state)
    for (const Int8Matrix& w : weights) {
      const int64_t N = w.codes.dim(0), K = w.codes.dim(1);
      const DType out = N == kHeadShape[0] ? DType::f32 : DType::bf16;
      int8_matmul(Tensor(y.data(), out, {1, N}), Tensor(x.data(), DType::bf16, {1, K}), w, room, stream);
    }
  set_bandwidth(state, bytes);
}

// GB/s read and written by copying as many bytes as `token` reads.
void copy_weights(benchmark::State& state, DType dtype) {
  const int64_t bytes = token_weights() * static_cast<int64_t>(size_bytes(dtype));
  Arena arena("weights and their copy", static_cast<size_t>(2 * bytes) + Arena::kAlign);
  std::byte* const from = static_cast<std::byte*>(arena.alloc(DType::u8, {bytes}).data);
  std::byte* const to = static_cast<std::byte*>(arena.alloc(DType::u8, {bytes}).data);
  std::memset(from, 0, static_cast<size_t>(bytes));
  std::memset(to, 0, static_cast<size_t>(bytes));
  for (auto _ : state)
    parallel_for(bytes, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  set_bandwidth(state, 2 * bytes);
}

void timed(benchmark::internal::Benchmark* b) {
  b->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
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
BENCHMARK_CAPTURE(run, bf16_TN_onednn, MatmulForm::kTN, DType::bf16, DType::f32, Engine::kOneDnn)
    ->Apply(shapes);
#endif
BENCHMARK_CAPTURE(run, logits_NT, MatmulForm::kNT, DType::bf16, DType::f32, Engine::kChosen)->Apply(shapes);
BENCHMARK_CAPTURE(run, bf16_TN, MatmulForm::kTN, DType::bf16, DType::f32, Engine::kChosen)->Apply(shapes);

BENCHMARK_CAPTURE(copy_weights, bf16, DType::bf16)->Apply(timed);
BENCHMARK_CAPTURE(token, bf16, DType::bf16, Engine::kChosen)->Apply(timed);
BENCHMARK(token_int8)->Apply(timed);
BENCHMARK_CAPTURE(copy_weights, f32, DType::f32)->Apply(timed);
BENCHMARK_CAPTURE(token, f32, DType::f32, Engine::kChosen)->Apply(timed);
#ifdef INGOT_WITH_ONEDNN
BENCHMARK_CAPTURE(token, bf16_onednn, DType::bf16, Engine::kOneDnn)->Apply(timed);
BENCHMARK_CAPTURE(token, f32_onednn, DType::f32, Engine::kOneDnn)->Apply(timed);
#endif

}  // namespace
}  // namespace ingot

BENCHMARK_MAIN();
