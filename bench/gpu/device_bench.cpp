// Compares the kernels of a CUDA device with the device's limits: bytes per second with a memory copy, and
// the operations per second of products. Each byte read or written counts once. Tensors are several times
// larger than the L2 cache.
//   device_bench [OUT.json]
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/philox.h"
#include "ingot/ops/activation.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/embedding.h"
#include "ingot/ops/fp8/cuda_fp8.h"
#include "ingot/ops/layernorm.h"
#include "ingot/ops/loss_sums.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/qk_norm.h"
#include "ingot/ops/rmsnorm.h"
#include "ingot/ops/rope.h"
#include "ingot/ops/row_sum.h"
#include "ingot/optim/cuda_step_check.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/rules/adamw.h"
#include "ingot/optim/rules/lion.h"

namespace ingot {
namespace {

// GPT-2 124M with 64 sequences of 1024 tokens; the logits are those of one chunk of tokens.
constexpr int64_t B = 64, T = 1024, N = B * T, C = 768, F = 3072, H = 12, D = 64, V = 50304, kVocab = 50257;
constexpr int64_t kChunk = 4096, kWeights = int64_t{64} << 20;
constexpr int kWarmUps = 3, kRuns = 20;

struct Row {
  std::string name;
  double time_s = 0;  // median
  double bytes = 0;
  double flops = 0;  // floating-point operations of a product; 0 for other ops
};

class Bench {
 public:
  Tensor tensor(DType dtype, const Shape& shape, double low = -2, double high = 2) {
    const Tensor t = arena_.alloc(dtype, shape);
    std::vector<char> values(1 << 20);
    const int64_t held =
        std::min<int64_t>(t.elements(), static_cast<int64_t>(values.size() / size_bytes(dtype)));
    for (int64_t i = 0; i < held; ++i) {
      const double u =
          low + (high - low) * static_cast<double>(random_uniform({.seed = 1}, static_cast<uint64_t>(i)));
      if (dtype == DType::bf16)
        reinterpret_cast<bf16*>(values.data())[i] = bf16(static_cast<float>(u));
      else if (dtype == DType::f32)
        reinterpret_cast<float*>(values.data())[i] = static_cast<float>(u);
      else if (dtype == DType::i32)
        reinterpret_cast<int32_t*>(values.data())[i] = static_cast<int32_t>(u);
    }
    const size_t piece = static_cast<size_t>(held) * size_bytes(dtype);
    for (size_t at = 0; at < t.bytes(); at += piece) {
      const int64_t bytes = static_cast<int64_t>(std::min(piece, t.bytes() - at));
      copy(Tensor(static_cast<char*>(t.data) + at, DType::u8, {bytes}, Device::kCuda),
           Tensor(values.data(), DType::u8, {bytes}), stream);
      synchronize(stream);
    }
    return t;
  }

  // Times a call that must move `bytes` bytes.
  void time(const std::string& name, double bytes, const std::function<void()>& call) {
    rows.push_back({name, median_s(call), bytes});
    const double rate = bytes / rows.back().time_s;
    fmt::print("{:<34} {:>9.1f} us {:>8.0f} GB/s {:>6.1f} % of the copy\n", name, rows.back().time_s * 1e6,
               rate * 1e-9, 100 * rate / copy_rate());
    std::fflush(stdout);
  }
  // Times a product of `flops` operations.
  void time_product(const std::string& name, double flops, const std::function<void()>& call) {
    rows.push_back({name, median_s(call), 0, flops});
    fmt::print("{:<34} {:>9.1f} us {:>8.1f} TFLOP/s\n", name, rows.back().time_s * 1e6,
               flops / rows.back().time_s * 1e-12);
    std::fflush(stdout);
  }

  double copy_rate() const { return rows.front().bytes / rows.front().time_s; }
  void release() { arena_.release_to(0); }

  Stream stream = cuda::make_stream();
  std::vector<Row> rows;

 private:
  double median_s(const std::function<void()>& call) {
    for (int i = 0; i < kWarmUps; ++i) call();
    std::vector<double> times;
    for (int i = 0; i < kRuns; ++i) {
      cuda::Event begin, end;
      begin.record(stream);
      call();
      end.record(stream);
      end.synchronize();
      times.push_back(end.seconds_since(begin));
    }
    std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
    return times[kRuns / 2];
  }

  Arena arena_{"bench", size_t{12} << 30, Memory::kDevice};
};

double bytes_of(std::initializer_list<Tensor> tensors) {
  double total = 0;
  for (const Tensor& t : tensors) total += static_cast<double>(t.bytes());
  return total;
}

void bench_copy(Bench& b) {
  const Tensor from = b.tensor(DType::bf16, {1 << 15, 1 << 16}),
               to = b.tensor(DType::bf16, {1 << 15, 1 << 16});
  b.time("copy of memory", bytes_of({from, to}), [&] { copy(to, from, b.stream); });
  b.release();
}

void bench_norms(Bench& b, int64_t width) {
  const int64_t rows = N * C / width;
  const auto wide = [&] { return b.tensor(DType::bf16, {rows, width}); };
  const Tensor x = wide(), y = wide(), sum = wide(), residual = wide();
  const Tensor w = b.tensor(DType::f32, {width}), dw = b.tensor(DType::f32, {width}),
               db = b.tensor(DType::f32, {width});
  const Tensor mean = b.tensor(DType::f32, {rows}), rstd = b.tensor(DType::f32, {rows}, 0.5, 1.5);
  const Tensor scratch = b.tensor(DType::f32, {2, kRowParts, width});
  const auto label = [&](const char* op) { return fmt::format("{} {}x{}", op, rows, width); };
  b.time(label("rmsnorm_forward"), bytes_of({x, y}),
         [&] { rmsnorm_forward(y, rstd, x, w, 1e-5f, b.stream); });
  b.time(label("residual_rmsnorm_forward"), bytes_of({x, y, sum, residual}),
         [&] { residual_rmsnorm_forward(y, sum, rstd, x, residual, w, 1e-5f, b.stream); });
  b.time(label("rmsnorm_backward"), bytes_of({x, y, sum, residual}),
         [&] { rmsnorm_backward(sum, dw, y, x, w, rstd, residual, scratch, b.stream); });
  b.time(label("layernorm_forward"), bytes_of({x, y}),
         [&] { layernorm_forward(y, mean, rstd, x, w, w, 1e-5f, b.stream); });
  b.time(label("layernorm_backward"), bytes_of({x, y, sum, residual}),
         [&] { layernorm_backward(sum, dw, db, y, x, w, mean, rstd, residual, scratch, b.stream); });
  b.release();
}

void bench_activations(Bench& b) {
  const Tensor x = b.tensor(DType::bf16, {N, F}), y = b.tensor(DType::bf16, {N, F}),
               dy = b.tensor(DType::bf16, {N, F});
  const Tensor bias = b.tensor(DType::f32, {F}), dbias = b.tensor(DType::f32, {F});
  const Tensor scratch = b.tensor(DType::f32, {kRowParts, F});
  b.time("gelu_tanh forward with bias", bytes_of({x, y}),
         [&] { activation_forward(y, x, bias, Activation::kGeluTanh, b.stream); });
  b.time("gelu_tanh backward with bias", bytes_of({x, y, dy}),
         [&] { activation_backward(y, dbias, dy, x, bias, Activation::kGeluTanh, scratch, b.stream); });
  b.time("relu2 forward", bytes_of({x, y}),
         [&] { activation_forward(y, x, {}, Activation::kRelu2, b.stream); });
  b.time("relu2 backward", bytes_of({x, y, dy}),
         [&] { activation_backward(y, {}, dy, x, {}, Activation::kRelu2, {}, b.stream); });
  const Tensor half = b.tensor(DType::bf16, {N, F / 2}), d_half = b.tensor(DType::bf16, {N, F / 2});
  b.time("swiglu forward", bytes_of({x, half}), [&] { swiglu_forward(half, x, b.stream); });
  b.time("swiglu backward", bytes_of({x, y, d_half}), [&] { swiglu_backward(y, d_half, x, b.stream); });
  b.time("bias forward", bytes_of({x, x}), [&] { bias_forward(x, bias, b.stream); });
  b.time("bias backward", bytes_of({x}), [&] { bias_backward(dbias, x, scratch, b.stream); });
  b.time("dropout", bytes_of({x, y}), [&] {
    dropout(y, x, 0.1f, {.seed = 1, .purpose = Purpose::kDropout, .stream = 1, .step = 1}, 0, b.stream);
  });
  b.release();
}

void bench_heads(Bench& b) {
  const Tensor qkv = b.tensor(DType::bf16, {B, T, 3 * C}), table = b.tensor(DType::f32, {T, D}, -1, 1);
  const Tensor other = b.tensor(DType::bf16, {B, T, 3 * C}),
               rstd = b.tensor(DType::f32, {B, T, 2 * H}, 0.5, 1.5);
  const Tensor heads = qkv.columns(0, 2 * C).split_last(2 * H, D),
               d = other.columns(0, 2 * C).split_last(2 * H, D);
  b.time("rope on q and k", 2 * bytes_of({heads}), [&] { rope_forward(heads, table, 0, b.stream); });
  b.time("qk_norm forward with rope", 2 * bytes_of({heads}),
         [&] { qk_norm_forward(heads, rstd, table, 0, 1e-6f, b.stream); });
  b.time("qk_norm backward with rope", 3 * bytes_of({heads}),
         [&] { qk_norm_backward(d, heads, rstd, table, 0, b.stream); });
  b.release();
}

void bench_ends(Bench& b) {
  const Tensor tokens = b.tensor(DType::i32, {N}, 0, kVocab), wte = b.tensor(DType::bf16, {V, C});
  const Tensor wpe = b.tensor(DType::bf16, {T, C}), out = b.tensor(DType::bf16, {N, C});
  const Tensor d_wte = b.tensor(DType::f32, {V, C}), d_wpe = b.tensor(DType::f32, {T, C});
  b.time("embedding forward", 2 * bytes_of({out}),
         [&] { embedding_forward(out, tokens, wte, wpe, T, 0, b.stream); });
  b.time("embedding backward", bytes_of({out, out, d_wte, d_wte}),
         [&] { embedding_backward(d_wte, d_wpe, out, tokens, T, 0, b.stream); });
  const Tensor logits = b.tensor(DType::f32, {kChunk, V}), d_logits = b.tensor(DType::bf16, {kChunk, V});
  const Tensor losses = b.tensor(DType::f32, {kChunk}), targets = b.tensor(DType::i32, {kChunk}, 0, kVocab);
  b.time("cross_entropy with bf16 gradient", bytes_of({logits, d_logits}), [&] {
    cross_entropy(losses, {}, d_logits, logits, targets,
                  {.vocab = kVocab, .cap = LogitCap::kTanh, .cap_a = 15}, b.stream);
  });
  b.release();
}

void bench_casts(Bench& b) {
  const Tensor x = b.tensor(DType::f32, {N, F}), y = b.tensor(DType::bf16, {N, F});
  const Tensor codes = b.tensor(DType::f8e4m3, {N, F}), turned = b.tensor(DType::f8e4m3, {F, N});
  const Tensor scale = b.tensor(DType::f32, {1}, 16, 17), amax = b.tensor(DType::f32, {1}, 0, 1e-3);
  const Tensor counts = b.tensor(DType::u32, {2});
  b.time("cast f32 to bf16", bytes_of({x, y}), [&] { cast(y, x, b.stream); });
  b.time("raise_amax of bf16", bytes_of({y}), [&] { cuda::raise_amax(amax, y, b.stream); });
  b.time("cast bf16 to e4m3", bytes_of({y, codes}), [&] {
    cuda::cast_to_fp8(codes, y, scale, {amax, counts}, b.stream);
  });
  b.time("cast bf16 to e4m3, both layouts", bytes_of({y, codes, turned}), [&] {
    cuda::cast_to_fp8_both_ways(codes, turned, y, scale, {amax, counts}, b.stream);
  });
  b.time("cast bf16 to e4m3, transposed", bytes_of({y, turned}), [&] {
    cuda::cast_to_fp8_both_ways({}, turned, y, scale, {amax, counts}, b.stream);
  });
  b.release();
}

void bench_updates(Bench& b) {
  const auto floats = [&](double low) { return b.tensor(DType::f32, {kWeights}, low, 1); };
  ParamState p{.param = {.name = "w", .shape = {kWeights}}, .state = {}};
  p.param.w = floats(-1), p.param.g = floats(-1), p.param.compute = b.tensor(DType::bf16, {kWeights});
  p.state = {floats(-1), floats(0)};
  RuleStep step{.lr = 1e-3, .weight_decay = 0.1, .momentum = 0.9, .t = 10};
  const Tensor parts = b.tensor(DType::f32, {cuda::kSquareParts});
  const Tensor verdict = b.tensor(DType::u8, {cuda::kStepCheckBytes}),
               sums = b.tensor(DType::u8, {1, kLossTotalsBytes});
  fill_zero(verdict, b.stream);
  fill_zero(sums, b.stream);
  step.factor = b.tensor(DType::f32, {1}, 1, 1);
  const Tensor ranges = b.tensor(DType::u8, {1, static_cast<int64_t>(sizeof(cuda::SquareRange))});
  const cuda::SquareRange range{p.param.g.as<float>(), kWeights};
  copy(ranges, Tensor(const_cast<cuda::SquareRange*>(&range), DType::u8, ranges.shape), b.stream);
  b.time("global norm", bytes_of({p.param.g}), [&] {
    cuda::sum_squares(parts, ranges, kWeights, b.stream);
    cuda::check_step(verdict, parts, sums, 1, 1, b.stream);
  });
  b.time("adamw with clip and bf16 copy",
         2 * bytes_of({p.param.w, p.param.g, p.state[0], p.state[1]}) + bytes_of({p.param.compute}),
         [&] { cuda::update_elementwise(p, AdamW({}, step), step, {}, b.stream); });
  p.state.pop_back();
  b.time("lion with clip and bf16 copy",
         2 * bytes_of({p.param.w, p.param.g, p.state[0]}) + bytes_of({p.param.compute}),
         [&] { cuda::update_elementwise(p, Lion({}, step), step, {}, b.stream); });
  b.release();
}

// Products of a layer of width 4096 (forward and backward) and one large product, in bf16 and in FP8 with
// scales.
void bench_products(Bench& b) {
  constexpr int64_t kRows = 16384, kWide = 8192, kNarrow = 4096;
  const Tensor x = b.tensor(DType::bf16, {kRows, kNarrow}), w = b.tensor(DType::bf16, {kWide, kNarrow});
  const Tensor y = b.tensor(DType::bf16, {kRows, kWide}), dw = b.tensor(DType::f32, {kWide, kNarrow});
  const double flops = 2.0 * kRows * kWide * kNarrow;
  b.time_product("bf16 forward (NT)", flops, [&] { matmul(y, x, w, MatmulForm::kNT, false, b.stream); });
  b.time_product("bf16 data gradient (NN)", flops,
                 [&] { matmul(x, y, w, MatmulForm::kNN, false, b.stream); });
  b.time_product("bf16 weight gradient (TN, f32 +=)", flops,
                 [&] { matmul(dw, y, x, MatmulForm::kTN, true, b.stream); });
  const Tensor x8 = b.tensor(DType::f8e4m3, {kRows, kNarrow}), w8 = b.tensor(DType::f8e4m3, {kWide, kNarrow});
  const Tensor amax = b.tensor(DType::f32, {1}, 0, 1e-3), counts = b.tensor(DType::u32, {2});
  const Tensor one = b.tensor(DType::f32, {1}, 1, 1);
  const Tensor fresh = b.tensor(DType::bf16, {kRows, kNarrow});
  cuda::cast_to_fp8(x8, fresh, one, {amax, counts}, b.stream);
  cuda::cast_to_fp8(w8, w, one, {amax, counts}, b.stream);
  for (bool is_fast : {true, false})
    b.time_product(is_fast ? "e4m3 forward, fast sums" : "e4m3 forward", flops, [&] {
      cuda::matmul_fp8(y, {x8, one}, {w8, one}, {.is_fast = is_fast}, b.stream);
    });
  b.release();
}

// Attention as the layers call it, on views of one packed buffer: with cuDNN, which needs scratch, and with
// Ingot's own kernel. Only operations below the diagonal count.
void bench_attention(Bench& b, const AttentionShape& s, bool has_documents) {
  const int64_t width = (s.H + 2 * s.K) * s.D;
  const auto part = [&](const Tensor& t, int64_t first, int64_t heads) {
    return t.columns(first * s.D, (first + heads) * s.D).split_last(heads, s.D);
  };
  const Tensor packed = b.tensor(DType::bf16, {s.B, s.T, width}),
               d = b.tensor(DType::bf16, {s.B, s.T, width});
  const Tensor out = b.tensor(DType::bf16, {s.B, s.T, s.H, s.D});
  const Tensor d_out = b.tensor(DType::bf16, {s.B, s.T, s.H, s.D});
  const Tensor lse = b.tensor(DType::f32, {s.B, s.H, s.T});
  const Tensor starts = has_documents ? b.tensor(DType::i32, {s.B, s.T}, 0, 0) : Tensor{};
  const auto scratch = [&](int64_t elements) {
    return b.tensor(DType::f32, {std::max<int64_t>(1, elements)});
  };
  const Tensor forward = scratch(attention_forward_scratch(s, Device::kCuda));
  const Tensor backward = scratch(attention_backward_scratch(s, Device::kCuda));
  const Tensor own_forward, own_backward = scratch(s.B * s.H * s.T);
  const AttentionConfig config{.scale = 0.1f};
  const Tensor q = part(packed, 0, s.H), k = part(packed, s.H, s.K), v = part(packed, s.H + s.K, s.K);
  const Tensor dq = part(d, 0, s.H), dk = part(d, s.H, s.K), dv = part(d, s.H + s.K, s.K);
  const double flops = 2.0 * static_cast<double>(s.B * s.H * s.T) * static_cast<double>(s.T * s.D);
  for (bool is_own : {false, true}) {
    const std::string what = fmt::format("{} d{} T{}{}", is_own ? "own attention" : "attention", s.D, s.T,
                                         has_documents ? " docs" : "");
    b.time_product(what, flops, [&] {
      attention_forward(out, lse, q, k, v, starts, config, is_own ? own_forward : forward, b.stream);
    });
    b.time_product(what + " backward", 2.5 * flops, [&] {
      attention_backward(dq, dk, dv, d_out, q, k, v, out, lse, starts, config,
                         is_own ? own_backward : backward, b.stream);
    });
  }
  b.release();
}

void write_json(const char* path, const Bench& b) {
  std::ofstream out(path);
  out << fmt::format("{{\"device\": \"{}\", \"copy_gb_s\": {:.1f}, \"kernels\": [\n",
                     cuda::devices().front().name, b.copy_rate() * 1e-9);
  for (size_t i = 0; i < b.rows.size(); ++i) {
    const Row& row = b.rows[i];
    out << fmt::format(
        "  {{\"name\": \"{}\", \"us\": {:.2f}, \"gb_s\": {:.1f}, \"of_copy\": {:.4f}, \"tflop_s\": "
        "{:.1f}}}{}\n",
        row.name, row.time_s * 1e6, row.bytes / row.time_s * 1e-9, row.bytes / row.time_s / b.copy_rate(),
        row.flops / row.time_s * 1e-12, i + 1 < b.rows.size() ? "," : "");
  }
  out << "]}\n";
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  if (ingot::cuda::devices().empty()) {
    std::printf("no CUDA device: %s\n", ingot::cuda::no_device_reason().c_str());
    return 77;
  }
  try {
    ingot::Bench bench;
    ingot::bench_copy(bench);
    ingot::bench_norms(bench, ingot::C);
    ingot::bench_norms(bench, 4096);
    ingot::bench_activations(bench);
    ingot::bench_heads(bench);
    ingot::bench_ends(bench);
    ingot::bench_casts(bench);
    ingot::bench_updates(bench);
    ingot::bench_products(bench);
    ingot::bench_attention(bench, {16, 1024, 1024, 12, 12, 64}, false);
    ingot::bench_attention(bench, {4, 2048, 2048, 16, 16, 128}, false);
    ingot::bench_attention(bench, {4, 2048, 2048, 16, 4, 128}, true);
    if (argc > 1) ingot::write_json(argv[1], bench);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
