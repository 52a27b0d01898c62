// Bandwidth of the memory-bound ops compared with a parallel memcpy: bytes per second, counting each byte
// read or written once. Tensors are larger than the caches.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "ingot/core/parallel.h"
#include "ingot/core/philox.h"
#include "ingot/ops/activation.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/embedding.h"
#include "ingot/ops/norm.h"

namespace ingot {
namespace {

constexpr int64_t kN = 16384, kC = 768, kF = 3072, kV = 50304, kVocab = 50257;

// The memory of one benchmark: tensors with values in [-2, 2).
class Memory {
 public:
  Tensor tensor(DType dtype, const Shape& shape) {
    const size_t size = static_cast<size_t>(shape.elements()) * size_bytes(dtype);
    blocks_.emplace_back(static_cast<char*>(std::aligned_alloc(64, (size + 63) / 64 * 64)), std::free);
    const Tensor t(blocks_.back().get(), dtype, shape);
    float values[1024];
    for (uint64_t i = 0; i < 1024; ++i) values[i] = random_uniform({.seed = 1}, i) * 4 - 2;
    for (int64_t i = 0; i < t.elements(); ++i) {
      const float value = values[i % 1024];
      if (dtype == DType::bf16)
        t.as<bf16>()[i] = bf16(value);
      else if (dtype == DType::f32)
        t.as<float>()[i] = value;
      else
        std::memset(t.data, 0, t.bytes());
    }
    return t;
  }
  Tensor scratch(int64_t C) { return tensor(DType::f32, {2, num_threads(), C}); }

 private:
  std::vector<std::unique_ptr<char, void (*)(void*)>> blocks_;
};

DType dtype_of_state(const benchmark::State& state) { return state.range(0) == 0 ? DType::f32 : DType::bf16; }

void report(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
  state.SetLabel(std::string(name(dtype_of_state(state))));
}

void BM_Copy(benchmark::State& state) {
  Memory memory;
  const DType dtype = dtype_of_state(state);
  const Tensor y = memory.tensor(dtype, {kN, kC}), x = memory.tensor(dtype, {kN, kC});
  for (auto _ : state)
    parallel_for(static_cast<int64_t>(x.bytes()), 1, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(y.data) + begin, static_cast<char*>(x.data) + begin,
                  static_cast<size_t>(end - begin));
    });
  report(state, 2 * x.bytes());
}

void BM_RmsNormForward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor y = memory.tensor(dtype, {kN, kC}), x = memory.tensor(dtype, {kN, kC});
  const Tensor w = memory.tensor(DType::f32, {kC}), rstd = memory.tensor(DType::f32, {kN});
  for (auto _ : state) rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .w = w, .eps = 1e-5f}, stream);
  report(state, 2 * x.bytes());
}

void BM_RmsNormBackward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor dx = memory.tensor(dtype, {kN, kC}), dy = memory.tensor(dtype, {kN, kC});
  const Tensor x = memory.tensor(dtype, {kN, kC}), w = memory.tensor(DType::f32, {kC});
  const Tensor dw = memory.tensor(DType::f32, {kC}), rstd = memory.tensor(DType::f32, {kN});
  const Tensor scratch = memory.scratch(kC);
  for (auto _ : state)
    rmsnorm_backward({.dx = dx, .dw = dw, .dy = dy, .x = x, .w = w, .rstd = rstd, .scratch = scratch},
                     stream);
  report(state, 3 * x.bytes());
}

void BM_LayerNormForward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor y = memory.tensor(dtype, {kN, kC}), x = memory.tensor(dtype, {kN, kC});
  const Tensor w = memory.tensor(DType::f32, {kC}), b = memory.tensor(DType::f32, {kC});
  const Tensor mean = memory.tensor(DType::f32, {kN}), rstd = memory.tensor(DType::f32, {kN});
  for (auto _ : state)
    layernorm_forward({.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = b, .eps = 1e-5f}, stream);
  report(state, 2 * x.bytes());
}

void BM_ResidualLayerNormForward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor y = memory.tensor(dtype, {kN, kC}), x = memory.tensor(dtype, {kN, kC});
  const Tensor residual = memory.tensor(dtype, {kN, kC}), sum = memory.tensor(dtype, {kN, kC});
  const Tensor w = memory.tensor(DType::f32, {kC}), b = memory.tensor(DType::f32, {kC});
  const Tensor mean = memory.tensor(DType::f32, {kN}), rstd = memory.tensor(DType::f32, {kN});
  for (auto _ : state)
    layernorm_forward({.y = y,
                       .sum = sum,
                       .mean = mean,
                       .rstd = rstd,
                       .x = x,
                       .residual = residual,
                       .w = w,
                       .b = b,
                       .eps = 1e-5f},
                      stream);
  report(state, 4 * x.bytes());
}

void BM_LayerNormBackward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor dx = memory.tensor(dtype, {kN, kC}), dy = memory.tensor(dtype, {kN, kC});
  const Tensor x = memory.tensor(dtype, {kN, kC}), w = memory.tensor(DType::f32, {kC});
  const Tensor dw = memory.tensor(DType::f32, {kC}), db = memory.tensor(DType::f32, {kC});
  const Tensor mean = memory.tensor(DType::f32, {kN}), rstd = memory.tensor(DType::f32, {kN});
  const Tensor scratch = memory.scratch(kC);
  for (auto _ : state)
    layernorm_backward({.dx = dx,
                        .dw = dw,
                        .db = db,
                        .dy = dy,
                        .x = x,
                        .w = w,
                        .mean = mean,
                        .rstd = rstd,
                        .scratch = scratch},
                       stream);
  report(state, 3 * x.bytes());
}

std::vector<int32_t> random_tokens() {
  std::vector<int32_t> ids(kN);
  for (size_t n = 0; n < ids.size(); ++n) ids[n] = static_cast<int32_t>(random_word({.seed = 2}, n) % kVocab);
  return ids;
}

void BM_EmbeddingForward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  std::vector<int32_t> ids = random_tokens();
  const Tensor tokens(ids.data(), DType::i32, {kN}), out = memory.tensor(dtype, {kN, kC});
  const Tensor wte = memory.tensor(dtype, {kV, kC}), wpe = memory.tensor(dtype, {1024, kC});
  for (auto _ : state) embedding_forward(out, tokens, whole_table(wte), wpe, 1024, 0, stream);
  report(state, 2 * out.bytes());
}

// Reads d_out; reads and writes the rows of d_wte in f32.
void BM_EmbeddingBackward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  std::vector<int32_t> ids = random_tokens();
  const Tensor tokens(ids.data(), DType::i32, {kN}), d_out = memory.tensor(dtype, {kN, kC});
  const Tensor d_wte = memory.tensor(DType::f32, {kV, kC}), d_wpe = memory.tensor(DType::f32, {1024, kC});
  for (auto _ : state) embedding_backward(whole_table(d_wte), d_wpe, d_out, tokens, 1024, 0, stream);
  report(state, d_out.bytes() + 2 * static_cast<size_t>(kN * kC) * 4);
}

void BM_ActivationForward(benchmark::State& state, Activation kind) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor y = memory.tensor(dtype, {kN / 4, kF}), x = memory.tensor(dtype, {kN / 4, kF});
  const Tensor bias = memory.tensor(DType::f32, {kF});
  for (auto _ : state) activation_forward(y, x, bias, kind, stream);
  report(state, 2 * x.bytes());
}

void BM_ActivationBackward(benchmark::State& state, Activation kind) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor dy = memory.tensor(dtype, {kN / 4, kF}), x = memory.tensor(dtype, {kN / 4, kF});
  const Tensor bias = memory.tensor(DType::f32, {kF}), dbias = memory.tensor(DType::f32, {kF});
  const Tensor dx = memory.tensor(dtype, {kN / 4, kF}), scratch = memory.scratch(kF);
  for (auto _ : state)
    activation_backward(
        {.dx = dx, .dbias = dbias, .dy = dy, .x = x, .bias = bias, .kind = kind, .scratch = scratch}, stream);
  report(state, 3 * x.bytes());
}

void BM_SwiGluForward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor y = memory.tensor(dtype, {kN / 4, kF}), gate_up = memory.tensor(dtype, {kN / 4, 2 * kF});
  for (auto _ : state) swiglu_forward(y, gate_up, stream);
  report(state, 3 * y.bytes());
}

void BM_SwiGluBackward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor dy = memory.tensor(dtype, {kN / 4, kF}), gate_up = memory.tensor(dtype, {kN / 4, 2 * kF});
  const Tensor d_gate_up = memory.tensor(dtype, {kN / 4, 2 * kF});
  for (auto _ : state) swiglu_backward(d_gate_up, dy, gate_up, stream);
  report(state, 5 * dy.bytes());
}

void BM_BiasForward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const Tensor y = memory.tensor(dtype_of_state(state), {kN, kC}), b = memory.tensor(DType::f32, {kC});
  std::memset(b.data, 0, b.bytes());  // the op works in place, so other values would grow y
  for (auto _ : state) bias_forward(y, b, stream);
  report(state, 2 * y.bytes());
}

void BM_BiasBackward(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const Tensor dy = memory.tensor(dtype_of_state(state), {kN, kC}), db = memory.tensor(DType::f32, {kC});
  const Tensor scratch = memory.scratch(kC);
  for (auto _ : state) bias_backward(db, dy, scratch, stream);
  report(state, dy.bytes());
}

void BM_Dropout(benchmark::State& state) {
  Memory memory;
  Stream stream;
  const DType dtype = dtype_of_state(state);
  const Tensor y = memory.tensor(dtype, {kN, kC}), x = memory.tensor(dtype, {kN, kC});
  for (auto _ : state) dropout(y, x, 0.1f, {.seed = 1, .purpose = Purpose::kDropout}, 0, stream);
  report(state, 2 * x.bytes());
}

// The logits are f32; the dtype is that of the gradient. For f32 the op works in place.
void BM_CrossEntropy(benchmark::State& state, LogitCap cap) {
  Memory memory;
  Stream stream;
  constexpr int64_t rows = 256;
  const DType dtype = dtype_of_state(state);
  const Tensor logits = memory.tensor(DType::f32, {rows, kV});
  const Tensor d_logits = dtype == DType::f32 ? logits : memory.tensor(dtype, {rows, kV});
  const Tensor losses = memory.tensor(DType::f32, {rows}), targets = memory.tensor(DType::i32, {rows});
  const CrossEntropyConfig config{.vocab = kVocab, .cap = cap, .cap_a = 15};
  for (auto _ : state) cross_entropy(losses, {}, d_logits, logits, targets, config, stream);
  report(state, logits.bytes() + d_logits.bytes());
}

#define INGOT_BENCH_DTYPES ArgName("bf16")->Arg(0)->Arg(1)->UseRealTime()->Unit(benchmark::kMillisecond)
BENCHMARK(BM_Copy)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_RmsNormForward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_RmsNormBackward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_LayerNormForward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_ResidualLayerNormForward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_LayerNormBackward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_EmbeddingForward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_EmbeddingBackward)->INGOT_BENCH_DTYPES;
BENCHMARK_CAPTURE(BM_ActivationForward, gelu_tanh, Activation::kGeluTanh)->INGOT_BENCH_DTYPES;
BENCHMARK_CAPTURE(BM_ActivationForward, gelu_exact, Activation::kGeluExact)->INGOT_BENCH_DTYPES;
BENCHMARK_CAPTURE(BM_ActivationForward, relu2, Activation::kRelu2)->INGOT_BENCH_DTYPES;
BENCHMARK_CAPTURE(BM_ActivationBackward, gelu_tanh, Activation::kGeluTanh)->INGOT_BENCH_DTYPES;
BENCHMARK_CAPTURE(BM_ActivationBackward, gelu_exact, Activation::kGeluExact)->INGOT_BENCH_DTYPES;
BENCHMARK_CAPTURE(BM_ActivationBackward, relu2, Activation::kRelu2)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_SwiGluForward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_SwiGluBackward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_BiasForward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_BiasBackward)->INGOT_BENCH_DTYPES;
BENCHMARK(BM_Dropout)->INGOT_BENCH_DTYPES;
BENCHMARK_CAPTURE(BM_CrossEntropy, none, LogitCap::kNone)->INGOT_BENCH_DTYPES;
BENCHMARK_CAPTURE(BM_CrossEntropy, tanh, LogitCap::kTanh)->INGOT_BENCH_DTYPES;

}  // namespace
}  // namespace ingot

BENCHMARK_MAIN();
