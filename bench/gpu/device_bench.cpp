// Compares the kernels of a CUDA device with the device's limits: bytes per second with a memory copy, and
// the operations per second of products. Each byte read or written counts once. Tensors are several times
// larger than the L2 cache, and hold random numbers.
//   device_bench [--json FILE.jsonl] [--tiny] [--model NAME]... [PART...]
// PART: peak, kernels, products, attention, masks, fused (with generation); all without one. NAME: a model of
// device_timer.h, whose products, attention and fusions are wanted; all without one. Every figure is written
// the moment it is measured: a line for people, and one JSON object in FILE. --tiny is for trying the program
// itself: its figures mean nothing.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/bench_attention.h"
#include "bench/gpu/bench_generation.h"
#include "bench/gpu/device_timer.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/ops/activation.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/cuda/cuda_libraries.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/dropout.h"
#include "ingot/ops/embedding.h"
#include "ingot/ops/linear_fused.h"
#include "ingot/ops/loss_sums.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/norm.h"
#include "ingot/ops/qk_norm.h"
#include "ingot/ops/rope.h"
#include "ingot/ops/row_sum.h"
#include "ingot/optim/cuda_step_check.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/rules/adamw.h"
#include "ingot/optim/rules/lion.h"

namespace ingot {
namespace {

void bench_copy(Bench& b) {
  const Tensor from = b.tensor(DType::bf16, {b.z.copy_rows, b.z.copy_columns}),
               to = b.tensor(DType::bf16, {b.z.copy_rows, b.z.copy_columns});
  b.time("copy of memory", bytes_of({from, to}), [&] { copy(to, from, b.stream); });
  b.release();
}

void bench_peak(Bench& b) {
  const int64_t n = b.z.peak;
  const Tensor x = b.tensor(DType::bf16, {n, n}), w = b.tensor(DType::bf16, {n, n}),
               y = b.tensor(DType::bf16, {n, n});
  b.time_product(fmt::format("product of {}x{}x{}", n, n, n), 2.0 * static_cast<double>(n * n * n),
                 [&] { matmul(y, x, w, MatmulForm::kNT, false, b.stream); });
  b.release();
}

void bench_norms(Bench& b, int64_t width) {
  const int64_t rows = b.z.N * b.z.C / width;
  const auto wide = [&] { return b.tensor(DType::bf16, {rows, width}); };
  const Tensor x = wide(), y = wide(), sum = wide(), residual = wide();
  const Tensor w = b.tensor(DType::f32, {width}), dw = b.tensor(DType::f32, {width}),
               db = b.tensor(DType::f32, {width});
  const Tensor mean = b.tensor(DType::f32, {rows}), rstd = b.tensor(DType::f32, {rows}, 0.5, 1.5);
  const Tensor scratch = b.tensor(DType::f32, {2, kRowParts, width});
  const auto label = [&](const char* op) { return fmt::format("{} {}x{}", op, rows, width); };
  b.time(label("rmsnorm_forward"), bytes_of({x, y}),
         [&] { rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .w = w, .eps = 1e-5f}, b.stream); });
  b.time(label("residual_rmsnorm_forward"), bytes_of({x, y, sum, residual}), [&] {
    rmsnorm_forward({.y = y, .sum = sum, .rstd = rstd, .x = x, .residual = residual, .w = w, .eps = 1e-5f},
                    b.stream);
  });
  b.time(label("rmsnorm_backward"), bytes_of({x, y, sum, residual}), [&] {
    rmsnorm_backward({.dx = sum,
                      .dw = dw,
                      .dy = y,
                      .x = x,
                      .w = w,
                      .rstd = rstd,
                      .d_residual = residual,
                      .scratch = scratch},
                     b.stream);
  });
  b.time(label("layernorm_forward"), bytes_of({x, y}), [&] {
    layernorm_forward({.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = w, .eps = 1e-5f}, b.stream);
  });
  b.time(label("layernorm_backward"), bytes_of({x, y, sum, residual}), [&] {
    layernorm_backward({.dx = sum,
                        .dw = dw,
                        .db = db,
                        .dy = y,
                        .x = x,
                        .w = w,
                        .mean = mean,
                        .rstd = rstd,
                        .d_residual = residual,
                        .scratch = scratch},
                       b.stream);
  });
  b.release();
}

void bench_activations(Bench& b) {
  const Tensor x = b.tensor(DType::bf16, {b.z.N, b.z.F}), y = b.tensor(DType::bf16, {b.z.N, b.z.F}),
               dy = b.tensor(DType::bf16, {b.z.N, b.z.F});
  const Tensor bias = b.tensor(DType::f32, {b.z.F}), dbias = b.tensor(DType::f32, {b.z.F});
  const Tensor scratch = b.tensor(DType::f32, {kRowParts, b.z.F});
  b.time("gelu_tanh forward with bias", bytes_of({x, y}),
         [&] { activation_forward(y, x, bias, Activation::kGeluTanh, b.stream); });
  b.time("gelu_tanh backward with bias", bytes_of({x, y, dy}), [&] {
    activation_backward({.dx = y,
                         .dbias = dbias,
                         .dy = dy,
                         .x = x,
                         .bias = bias,
                         .kind = Activation::kGeluTanh,
                         .scratch = scratch},
                        b.stream);
  });
  b.time("relu2 forward", bytes_of({x, y}),
         [&] { activation_forward(y, x, {}, Activation::kRelu2, b.stream); });
  b.time("relu2 backward", bytes_of({x, y, dy}),
         [&] { activation_backward({.dx = y, .dy = dy, .x = x, .kind = Activation::kRelu2}, b.stream); });
  const Tensor half = b.tensor(DType::bf16, {b.z.N, b.z.F / 2}),
               d_half = b.tensor(DType::bf16, {b.z.N, b.z.F / 2});
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
  const Tensor qkv = b.tensor(DType::bf16, {b.z.B, b.z.T, 3 * b.z.C}),
               table = b.tensor(DType::f32, {b.z.T, b.z.D}, -1, 1);
  const Tensor other = b.tensor(DType::bf16, {b.z.B, b.z.T, 3 * b.z.C}),
               rstd = b.tensor(DType::f32, {b.z.B, b.z.T, 2 * b.z.H}, 0.5, 1.5);
  const Tensor heads = qkv.columns(0, 2 * b.z.C).split_last(2 * b.z.H, b.z.D),
               d = other.columns(0, 2 * b.z.C).split_last(2 * b.z.H, b.z.D);
  b.time("rope on q and k", 2 * bytes_of({heads}), [&] { rope_forward(heads, table, 0, b.stream); });
  b.time("qk_norm forward with rope", 2 * bytes_of({heads}),
         [&] { qk_norm_forward(heads, rstd, table, 0, 1e-6f, b.stream); });
  b.time("qk_norm backward with rope", 3 * bytes_of({heads}),
         [&] { qk_norm_backward(d, heads, rstd, table, 0, b.stream); });
  const auto gain = [&] { return b.tensor(DType::f32, {b.z.D}); };
  const QkGains gains{gain(), gain(), b.z.H}, d_gains{gain(), gain(), b.z.H};
  const Tensor raw = b.tensor(DType::bf16, heads.shape), sums = b.tensor(DType::f32, {3 * kRowParts, b.z.D});
  b.time("qk_norm forward with gains and rope", 3 * bytes_of({heads}), [&] {
    qk_norm_gain_forward({.x = heads, .raw = raw, .rstd = rstd, .gains = gains, .table = table, .eps = 1e-6f},
                         b.stream);
  });
  b.time("qk_norm backward with gains and rope", 3 * bytes_of({heads}), [&] {
    qk_norm_gain_backward({.dy = d,
                           .d_gains = d_gains,
                           .raw = raw,
                           .rstd = rstd,
                           .gains = gains,
                           .table = table,
                           .scratch = sums},
                          b.stream);
  });
  b.release();
}

void bench_ends(Bench& b) {
  const Tensor tokens = b.tensor(DType::i32, {b.z.N}, 0, b.z.vocab),
               wte = b.tensor(DType::bf16, {b.z.V, b.z.C});
  const Tensor wpe = b.tensor(DType::bf16, {b.z.T, b.z.C}), out = b.tensor(DType::bf16, {b.z.N, b.z.C});
  const Tensor d_wte = b.tensor(DType::f32, {b.z.V, b.z.C}), d_wpe = b.tensor(DType::f32, {b.z.T, b.z.C});
  b.time("embedding forward", 2 * bytes_of({out}),
         [&] { embedding_forward(out, tokens, whole_table(wte), wpe, b.z.T, 0, b.stream); });
  b.time("embedding backward", bytes_of({out, out, d_wte, d_wte}),
         [&] { embedding_backward(whole_table(d_wte), d_wpe, out, tokens, b.z.T, 0, b.stream); });
  const Tensor logits = b.tensor(DType::f32, {b.z.chunk, b.z.V}),
               d_logits = b.tensor(DType::bf16, {b.z.chunk, b.z.V});
  const Tensor losses = b.tensor(DType::f32, {b.z.chunk}),
               targets = b.tensor(DType::i32, {b.z.chunk}, 0, b.z.vocab);
  b.time("cross_entropy with bf16 gradient", bytes_of({logits, d_logits}), [&] {
    cross_entropy(losses, {}, d_logits, logits, targets,
                  {.vocab = b.z.vocab, .cap = LogitCap::kTanh, .cap_a = 15}, b.stream);
  });
  b.release();
}

void bench_casts(Bench& b) {
  const Tensor x = b.tensor(DType::f32, {b.z.N, b.z.F}), y = b.tensor(DType::bf16, {b.z.N, b.z.F});
  const Tensor codes = b.tensor(DType::f8e4m3, {b.z.N, b.z.F}),
               turned = b.tensor(DType::f8e4m3, {b.z.F, b.z.N});
  const Tensor scale = b.tensor(DType::f32, {1}, 16, 17), amax = b.tensor(DType::f32, {1}, 0, 1e-3);
  const Tensor counts = b.tensor(DType::u32, {2});
  b.time("cast f32 to bf16", bytes_of({x, y}), [&] { cast(y, x, b.stream); });
  b.time("raise_amax of bf16", bytes_of({y}), [&] { cuda::raise_amax(y.with_amax(amax), b.stream); });
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
  const auto floats = [&](double low) { return b.tensor(DType::f32, {b.z.weights}, low, 1); };
  ParamState p{.param = {.name = "w", .shape = {b.z.weights}}, .state = {}};
  p.param.w = floats(-1), p.param.g = floats(-1), p.param.compute = b.tensor(DType::bf16, {b.z.weights});
  p.state = {floats(-1), floats(0)};
  RuleStep step{.lr = 1e-3, .weight_decay = 0.1, .momentum = 0.9, .t = 10};
  const Tensor parts = b.tensor(DType::f32, {cuda::kSquareParts});
  const Tensor verdict = b.tensor(DType::u8, {cuda::kStepCheckBytes}),
               sums = b.tensor(DType::u8, {1, kLossTotalsBytes}),
               ranks = b.tensor(DType::u8, {1, cuda::kRankSumsBytes});
  fill_zero(verdict, b.stream);
  fill_zero(sums, b.stream);
  step.factor = b.tensor(DType::f32, {1}, 1, 1);
  const Tensor ranges = b.tensor(DType::u8, {1, static_cast<int64_t>(sizeof(cuda::SquareRange))});
  const cuda::SquareRange range{p.param.g.as<float>(), b.z.weights};
  copy(ranges, Tensor(const_cast<cuda::SquareRange*>(&range), DType::u8, ranges.shape), b.stream);
  b.time("global norm", bytes_of({p.param.g}), [&] {
    cuda::sum_squares(parts, ranges, b.z.weights, b.stream);
    cuda::sum_step(ranks.reshape({cuda::kRankSumsBytes}), parts, sums, {}, b.stream);
    cuda::check_step(verdict, ranks, 1, 1, b.stream);
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

// Every product of a model's step, in the three forms, and in FP8 with one scale per tensor.
void bench_products(Bench& b, const Model& m) {
  struct Linear {
    const char* name;
    int64_t rows, out, in;
  };
  // The head's logits exist for one chunk of tokens at a time.
  const int64_t N = m.rows(), head_rows = std::min<int64_t>(N, b.z.chunk);
  const std::vector<Linear> linears = {{"qkv", N, 3 * m.H * m.D, m.C},
                                       {"projection", N, m.C, m.H * m.D},
                                       {"mlp up", N, m.is_llama ? 2 * m.F : m.F, m.C},
                                       {"mlp down", N, m.C, m.F},
                                       {"head", head_rows, m.V, m.C}};
  for (const Linear& l : linears) {
    const Tensor x = b.tensor(DType::bf16, {l.rows, l.in}), w = b.tensor(DType::bf16, {l.out, l.in});
    const Tensor y = b.tensor(DType::bf16, {l.rows, l.out}), dw = b.tensor(DType::f32, {l.out, l.in});
    const double flops = 2.0 * static_cast<double>(l.rows * l.out) * static_cast<double>(l.in);
    const auto label = [&](const char* form) {
      return fmt::format("{} {} {} {}x{}x{}", m.name, l.name, form, l.rows, l.out, l.in);
    };
    b.time_product(label("NT"), flops, [&] { matmul(y, x, w, MatmulForm::kNT, false, b.stream); });
    b.time_product(label("NN"), flops, [&] { matmul(x, y, w, MatmulForm::kNN, false, b.stream); });
    b.time_product(label("TN"), flops, [&] { matmul(dw, y, x, MatmulForm::kTN, true, b.stream); });
    const Tensor x8 = b.tensor(DType::f8e4m3, {l.rows, l.in}), w8 = b.tensor(DType::f8e4m3, {l.out, l.in});
    const Tensor amax = b.tensor(DType::f32, {1}, 0, 1e-3), counts = b.tensor(DType::u32, {2});
    const Tensor one = b.tensor(DType::f32, {1}, 1, 1), fresh = b.tensor(DType::bf16, {l.rows, l.in});
    cuda::cast_to_fp8(x8, fresh, one, {amax, counts}, b.stream);
    cuda::cast_to_fp8(w8, w, one, {amax, counts}, b.stream);
    for (bool is_fast : {true, false})
      b.time_product(label(is_fast ? "e4m3 fast" : "e4m3"), flops, [&] {
        cuda::matmul_fp8(y, {x8, one}, {w8, one}, {.is_fast = is_fast}, b.stream);
      });
    b.release();
  }
}

// Compares a product that adds the residual stream, and a norm of the sum, with a norm that adds.
void bench_residual_sum(Bench& b, const Model& m) {
  const int64_t N = m.rows();
  const Tensor act = b.tensor(DType::bf16, {N, m.F}), down = b.tensor(DType::bf16, {m.C, m.F});
  const Tensor base = b.tensor(DType::bf16, {N, m.C}), delta = b.tensor(DType::bf16, {N, m.C});
  const Tensor sum = b.tensor(DType::bf16, {N, m.C}), h = b.tensor(DType::bf16, {N, m.C});
  const Tensor w = b.tensor(DType::f32, {m.C}), rstd = b.tensor(DType::f32, {N});
  b.compare(
      m.name + " product with the residual stream, norm", "fused",
      [&] {
        linear_sum(sum, act, down, {.base = base}, b.stream);
        rmsnorm_forward({.y = h, .rstd = rstd, .x = sum, .w = w, .eps = 1e-5f}, b.stream);
      },
      "apart",
      [&] {
        matmul(delta, act, down, MatmulForm::kNT, false, b.stream);
        rmsnorm_forward(
            {.y = h, .sum = sum, .rstd = rstd, .x = base, .residual = delta, .w = w, .eps = 1e-5f}, b.stream);
      });
  b.release();
}

// Compares products that are fused with their neighbours with the same work in separate kernels.
void bench_epilogues(Bench& b, const Model& m) {
  cuda::libraries_of(b.stream).always_fuses = true;
  bench_residual_sum(b, m);
  if (m.is_llama) return;  // it has neither biases nor GELU
  const int64_t N = m.rows();
  const Tensor x = b.tensor(DType::bf16, {N, m.C}), w = b.tensor(DType::bf16, {m.F, m.C});
  const Tensor pre = b.tensor(DType::bf16, {N, m.F}), act = b.tensor(DType::bf16, {N, m.F});
  const Tensor d_pre = b.tensor(DType::bf16, {N, m.F}), dy = b.tensor(DType::bf16, {N, m.C});
  const Tensor down = b.tensor(DType::bf16, {m.C, m.F}), dw = b.tensor(DType::f32, {m.F, m.C});
  const Tensor bias = b.tensor(DType::f32, {m.F}), db = b.tensor(DType::f32, {m.F});
  const Tensor rounded = b.tensor(DType::bf16, {m.F}), sums = b.tensor(DType::f32, {kRowParts, m.F});
  b.compare(
      m.name + " product with bias", "fused",
      [&] { linear_sum(pre, x, w, {.bias = bias, .rounded = rounded}, b.stream); }, "apart",
      [&] {
        matmul(pre, x, w, MatmulForm::kNT, false, b.stream);
        bias_forward(pre, bias, b.stream);
      });
  b.compare(
      m.name + " product with bias and gelu", "fused",
      [&] { linear_gelu(act, pre, x, w, bias, rounded, b.stream); }, "apart",
      [&] {
        matmul(pre, x, w, MatmulForm::kNT, false, b.stream);
        activation_forward(act, pre, bias, Activation::kGeluTanh, b.stream);
      });
  b.compare(
      m.name + " product with gelu's derivative", "fused",
      [&] { linear_gelu_backward(d_pre, dy, down, pre, b.stream); }, "apart",
      [&] {
        matmul(d_pre, dy, down, MatmulForm::kNN, false, b.stream);
        activation_backward({.dx = d_pre, .dy = d_pre, .x = pre, .kind = Activation::kGeluTanh}, b.stream);
      });
  b.compare(
      m.name + " weight and bias gradient", "fused",
      [&] { linear_weight_gradients({dw}, db, d_pre, x, sums, b.stream); }, "apart",
      [&] {
        matmul(dw, d_pre, x, MatmulForm::kTN, true, b.stream);
        bias_backward(db, d_pre, sums, b.stream);
      });
  b.release();
}

void run_part(Bench& b, const std::string& part, const std::vector<Model>& models) {
  if (part == "peak") {
    bench_peak(b);
  } else if (part == "kernels") {
    bench_norms(b, b.z.C);
    bench_norms(b, b.z.wide_norm);
    bench_activations(b);
    bench_heads(b);
    bench_decode(b);
    bench_ends(b);
    bench_casts(b);
    bench_updates(b);
  } else if (part == "products") {
    for (const Model& m : models) bench_products(b, m);
  } else if (part == "attention" || part == "masks") {
    for (const Model& m : models) bench_attention(b, part, {m.B, m.T, m.T, m.H, m.H, m.D}, false);
    const Model& m = models.back();
    if (part == "masks")  // with documents, and four query heads for one of keys
      bench_attention(b, part, {m.B, m.T, m.T, m.H, std::max<int64_t>(1, m.H / 4), m.D}, true);
  } else if (part == "fused") {
    for (const Model& m : models) bench_epilogues(b, m);
    bench_generation(b, models.front(), b.z.is_tiny ? 1 : 12);
  } else {
    fail(ErrorKind::kUsage, "{}: a part is peak, kernels, products, attention, masks or fused", part);
  }
}

int run(int argc, char** argv) {
  const char* json = nullptr;
  bool is_tiny = false;
  std::vector<std::string> parts, names;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--tiny")
      is_tiny = true;
    else if (word == "--json" && i + 1 < argc)
      json = argv[++i];
    else if (word == "--model" && i + 1 < argc)
      names.emplace_back(argv[++i]);
    else if (word.starts_with("-"))
      fail(ErrorKind::kUsage,
           "{}: usage: device_bench [--json FILE.jsonl] [--tiny] [--model NAME]... [PART...]", word);
    else
      parts.push_back(word);
  }
  if (parts.empty()) parts = {"peak", "kernels", "products", "attention", "masks", "fused"};
  std::vector<Model> models = is_tiny ? kTinyModels : kModels;
  const auto is_wanted = [&](const Model& m) { return std::ranges::find(names, m.name) != names.end(); };
  if (!names.empty()) std::erase_if(models, std::not_fn(is_wanted));
  if (models.empty()) fail(ErrorKind::kUsage, "{}: no model has this name", names.front());
  Bench bench(is_tiny ? tiny() : Size{}, json);
  bench_copy(bench);
  for (const std::string& part : parts) run_part(bench, part, models);
  return 0;
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  if (ingot::cuda::devices().empty()) {
    std::printf("no CUDA device: %s\n", ingot::cuda::no_device_reason().c_str());
    return 77;
  }
  try {
    return ingot::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_bench: %s\n", error.what());
    return 1;
  }
}
