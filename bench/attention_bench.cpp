// Attention in GFLOP/s of useful work: 2 products (forward) or 5 (backward) over the (query, key) pairs that
// the causal mask allows. BM_FmaPeak is the upper bound: fused multiply-adds in registers, on all threads.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "ingot/core/parallel.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/simd/vec.h"

namespace ingot {
namespace {

void BM_FmaPeak(benchmark::State& state) {
  constexpr int kChains = 12, kSteps = 1 << 16;
  std::vector<float> sink(static_cast<size_t>(num_threads()) * 64);
  for (auto _ : state)
    parallel_ranges(num_threads(), 1, [&](int thread, int64_t, int64_t) {
      vec::Vec acc[kChains];
      for (int i = 0; i < kChains; ++i) acc[i] = vec::splat(static_cast<float>(i));
      vec::Vec x = vec::splat(0.5f);
      for (int i = 0; i < kSteps; ++i) {
        asm volatile("" : "+x"(x));  // keeps the compiler from folding the loop
        for (vec::Vec& a : acc) a = a * x + x;
      }
      vec::Vec total{};
      for (const vec::Vec& a : acc) total += a;
      sink[static_cast<size_t>(thread) * 64] = vec::sum(total);
    });
  benchmark::DoNotOptimize(sink.data());
  const double flops = 2.0 * kChains * kSteps * vec::kLanes * num_threads();
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

struct Problem {
  AttentionShape shape;
  DType dtype;
  std::vector<float> memory;
  Tensor qkv, d_qkv, out, d_out, lse, scratch;  // qkv (B,T,(H+2K)*D), out (B,T,H*D)
  Stream stream;
  AttentionConfig config;

  Problem(const AttentionShape& s, DType dtype) : shape(s), dtype(dtype), config{1 / std::sqrt(float(s.D))} {
    const int64_t width = (s.H + 2 * s.K) * s.D, outputs = s.B * s.T * s.H * s.D;
    const int64_t scratch_size = std::max(attention_forward_scratch(s), attention_backward_scratch(s));
    memory.resize(static_cast<size_t>(2 * s.B * s.T * width + 2 * outputs + s.B * s.H * s.T + scratch_size));
    float* next = memory.data();
    const auto take = [&](DType type, const Shape& tensor_shape) {
      const Tensor t(next, type, tensor_shape);
      next += t.elements();
      return t;
    };
    qkv = take(dtype, {s.B, s.T, width});
    d_qkv = take(dtype, {s.B, s.T, width});
    out = take(dtype, {s.B, s.T, s.H, s.D});
    d_out = take(dtype, {s.B, s.T, s.H, s.D});
    lse = take(DType::f32, {s.B, s.H, s.T});
    scratch = take(DType::f32, {scratch_size});
    uint32_t state = 1;
    for (const Tensor& t : {qkv, d_out})
      for (int64_t i = 0; i < t.elements(); ++i) {
        state = state * 1664525u + 1013904223u;
        const float value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
        if (dtype == DType::bf16)
          t.as<bf16>()[i] = bf16(value);
        else
          t.as<float>()[i] = value;
      }
  }
  Tensor q(const Tensor& packed) const {
    return packed.columns(0, shape.H * shape.D).split_last(shape.H, shape.D);
  }
  Tensor k(const Tensor& packed) const { return kv(packed, shape.H); }
  Tensor v(const Tensor& packed) const { return kv(packed, shape.H + shape.K); }
  Tensor kv(const Tensor& packed, int64_t first_head) const {
    return packed.columns(first_head * shape.D, (first_head + shape.K) * shape.D)
        .split_last(shape.K, shape.D);
  }
  void forward() {
    attention_forward({.out = out, .lse = lse, .q = q(qkv), .k = k(qkv), .v = v(qkv)}, config, scratch,
                      stream);
  }
  void backward() {
    attention_backward({.dq = q(d_qkv), .dk = k(d_qkv), .dv = v(d_qkv), .d_out = d_out},
                       {.out = out, .lse = lse, .q = q(qkv), .k = k(qkv), .v = v(qkv)}, config, scratch,
                       stream);
  }
  double product_flops() const {
    const double pairs = static_cast<double>(shape.T) * static_cast<double>(shape.T + 1) / 2;
    return 2.0 * static_cast<double>(shape.B * shape.H * shape.D) * pairs;
  }
};

AttentionShape shape_of(const benchmark::State& state) {
  return {state.range(1), state.range(2), state.range(2), state.range(3), state.range(4), state.range(5)};
}
DType dtype_of_range(const benchmark::State& state) {
  return state.range(0) == 16 ? DType::bf16 : DType::f32;
}

void BM_Forward(benchmark::State& state) {
  Problem p(shape_of(state), dtype_of_range(state));
  for (auto _ : state) p.forward();
  state.counters["GFLOP/s"] =
      benchmark::Counter(2 * p.product_flops() * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Backward(benchmark::State& state) {
  Problem p(shape_of(state), dtype_of_range(state));
  p.forward();
  for (auto _ : state) p.backward();
  state.counters["GFLOP/s"] =
      benchmark::Counter(5 * p.product_flops() * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// One new token against a cache of S keys with layout (B,S,K,D). It is bound by reading K and V, so
// the result is in GB/s.
void BM_Decode(benchmark::State& state) {
  AttentionShape s = shape_of(state);
  Problem p(s, dtype_of_range(state));
  s.T = 1;
  std::vector<float> scratch_memory(static_cast<size_t>(attention_forward_scratch(s)));
  const Tensor scratch(scratch_memory.data(), DType::f32, {attention_forward_scratch(s)});
  const Tensor out(p.out.data, p.dtype, {s.B, 1, s.H, s.D});
  Tensor q = p.q(p.qkv);
  q.shape[1] = 1;
  for (auto _ : state)
    attention_forward({.out = out, .q = q, .k = p.k(p.qkv), .v = p.v(p.qkv)}, p.config, scratch, p.stream);
  const double bytes =
      2.0 * static_cast<double>(s.B * s.S * s.K * s.D) * static_cast<double>(size_bytes(p.dtype));
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bits", "B", "T", "H", "K", "D"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (int64_t bits : {32, 16}) {
    bench->Args({bits, 12, 64, 4, 4, 32});
    bench->Args({bits, 4, 256, 12, 12, 64});
    bench->Args({bits, 1, 1024, 16, 4, 64});
    bench->Args({bits, 1, 1024, 16, 4, 128});
    bench->Args({bits, 1, 4096, 16, 4, 64});
    bench->Args({bits, 1, 16384, 2, 1, 64});
  }
}

BENCHMARK(BM_FmaPeak)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Forward)->Apply(shapes);
BENCHMARK(BM_Backward)->Apply(shapes);
BENCHMARK(BM_Decode)->Apply(shapes);

}  // namespace
}  // namespace ingot

BENCHMARK_MAIN();
