// The parts "attention" and "masks" of device_bench.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/device_timer.h"
#include "ingot/core/copy.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/cuda/cuda_libraries.h"

namespace ingot {

// Attention as the layers call it, on views of one packed buffer: with cuDNN, which needs scratch, and with
// Ingot's own kernel. Only operations below the diagonal count. `part` "masks" compares forms of masks
// instead.
inline void bench_attention(Bench& b, const std::string& part, const AttentionShape& s, bool has_documents) {
  const int64_t width = (s.H + 2 * s.K) * s.D;
  const auto view = [&](const Tensor& t, int64_t first, int64_t heads) {
    return t.columns(first * s.D, (first + heads) * s.D).split_last(heads, s.D);
  };
  const Tensor packed = b.tensor(DType::bf16, {s.B, s.T, width}),
               d = b.tensor(DType::bf16, {s.B, s.T, width});
  const Tensor out = b.tensor(DType::bf16, {s.B, s.T, s.H, s.D});
  const Tensor d_out = b.tensor(DType::bf16, {s.B, s.T, s.H, s.D});
  const Tensor lse = b.tensor(DType::f32, {s.B, s.H, s.T});
  const Tensor starts = has_documents ? b.tensor(DType::i32, {s.B, s.T}, 0, 0) : Tensor{};
  Tensor cu_seqlens;
  if (has_documents) {  // four documents in every row
    const int64_t length = s.T / 4;
    std::vector<int32_t> of_tokens, of_documents;
    for (int64_t i = 0; i < s.B * s.T; ++i)
      of_tokens.push_back(static_cast<int32_t>(i % s.T / length * length));
    for (int64_t i = 0; i <= s.B * s.T; i += length) of_documents.push_back(static_cast<int32_t>(i));
    cu_seqlens = b.tensor(DType::i32, {std::ssize(of_documents)}, 0, 0);
    copy(starts, Tensor(of_tokens.data(), DType::i32, starts.shape), b.stream);
    copy(cu_seqlens, Tensor(of_documents.data(), DType::i32, cu_seqlens.shape), b.stream);
    synchronize(b.stream);
  }
  const auto scratch = [&](int64_t elements) {
    return b.tensor(DType::f32, {std::max<int64_t>(1, elements)});
  };
  const Tensor forward = scratch(attention_forward_scratch(s, Device::kCuda, has_documents));
  const Tensor backward = scratch(attention_backward_scratch(s, Device::kCuda, has_documents));
  const Tensor own_forward, own_backward = scratch(s.B * s.H * s.T);
  const AttentionConfig config{.scale = 0.1f};
  const AttentionOperands operands{.out = out,
                                   .lse = lse,
                                   .q = view(packed, 0, s.H),
                                   .k = view(packed, s.H, s.K),
                                   .v = view(packed, s.H + s.K, s.K),
                                   .doc_start = starts};
  const AttentionGradients gradients{
      .dq = view(d, 0, s.H), .dk = view(d, s.H, s.K), .dv = view(d, s.H + s.K, s.K), .d_out = d_out};
  const double flops = 2.0 * static_cast<double>(s.B * s.H * s.T) * static_cast<double>(s.T * s.D);
  const std::string shape = fmt::format("d{} T{}{}", s.D, s.T, has_documents ? " docs" : "");
  if (part == "attention") {
    for (bool is_own : {false, true}) {
      const std::string what = (is_own ? "own attention " : "attention ") + shape;
      b.time_product(what, flops,
                     [&] { attention_forward(operands, config, is_own ? own_forward : forward, b.stream); });
      b.time_product(what + " backward", 2.5 * flops, [&] {
        attention_backward(gradients, operands, config, is_own ? own_backward : backward, b.stream);
      });
    }
    b.release();
    return;
  }
  // The same graphs, with -inf in place of the lowest number for what the mask hides.
  const auto with_mask = [&](bool is_infinite, const std::function<void()>& call) {
    return [&b, is_infinite, call] {
      cuda::libraries_of(b.stream).masks_with_infinity = is_infinite;
      call();
      cuda::libraries_of(b.stream).masks_with_infinity = false;
    };
  };
  const auto run_forward = [&] { attention_forward(operands, config, forward, b.stream); };
  const auto run_backward = [&] { attention_backward(gradients, operands, config, backward, b.stream); };
  b.compare("attention mask " + shape, "lowest", with_mask(false, run_forward), "infinity",
            with_mask(true, run_forward));
  b.compare("attention mask " + shape + " backward", "lowest", with_mask(false, run_backward), "infinity",
            with_mask(true, run_backward));
  AttentionConfig in_window = config;
  in_window.window = s.T / 4;
  b.compare(
      "attention window of a quarter " + shape, "window",
      [&] { attention_forward(operands, in_window, forward, b.stream); }, "all keys", run_forward);
  b.compare(
      "attention window of a quarter " + shape + " backward", "window",
      [&] { attention_backward(gradients, operands, in_window, backward, b.stream); }, "all keys",
      run_backward);
  if (has_documents) {
    AttentionConfig apart = config;
    apart.cu_seqlens = cu_seqlens;
    b.compare(
        "attention of documents " + shape, "apart",
        [&] { attention_forward(operands, apart, forward, b.stream); }, "masked", run_forward);
    b.compare(
        "attention of documents " + shape + " backward", "apart",
        [&] { attention_backward(gradients, operands, apart, backward, b.stream); }, "masked", run_backward);
  }
  b.release();
}

}  // namespace ingot
