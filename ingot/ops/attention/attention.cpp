#include "ingot/ops/attention.h"

#include <algorithm>
#include <vector>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/work.h"
#include "ingot/ops/attention/attention_cudnn.h"
#include "ingot/ops/attention/attention_graph.h"
#include "ingot/ops/attention/attention_kernels.h"
#include "ingot/ops/cuda/cuda_libraries.h"

namespace ingot {

namespace cuda {  // attention.cu
decltype(ingot::attention_forward) attention_forward;
decltype(ingot::attention_backward) attention_backward;
}  // namespace cuda

namespace {

void check_operand(const Tensor& t, DType dtype, const Shape& shape, const char* op, const char* operand) {
  INGOT_CHECK(t && t.dtype == dtype && t.shape == shape && (shape[3] == 1 || t.strides[3] == 1),
              "{}: {} must be {} {} with the last dim contiguous, got {} {}", op, operand, name(dtype),
              shape.to_string(), name(t.dtype), t ? t.shape.to_string() : "no tensor");
}

bool is_decoding(const AttentionShape& shape) { return shape.T == 1 && shape.S > 1; }

AttentionShape check_shapes(const AttentionOperands& t, bool is_causal, const char* op) {
  const Tensor &q = t.q, &k = t.k;
  INGOT_CHECK(q.rank() == 4 && k.rank() == 4, "{}: q must be (B, T, H, D) and k (B, S, K, D), got {} and {}",
              op, q.shape.to_string(), k.shape.to_string());
  const AttentionShape s{q.dim(0), q.dim(1), k.dim(1), q.dim(2), k.dim(2), q.dim(3)};
  check_operand(q, q.dtype, q.shape, op, "q");
  check_operand(k, q.dtype, {s.B, s.S, s.K, s.D}, op, "k");
  check_operand(t.v, q.dtype, {s.B, s.S, s.K, s.D}, op, "v");
  INGOT_CHECK(s.K >= 1 && s.H % s.K == 0, "{}: heads must be a multiple of kv heads, got {} and {}", op, s.H,
              s.K);
  INGOT_CHECK(s.D >= 1 && s.S >= 1, "{}: D and S must be at least 1, got {} and {}", op, s.D, s.S);
  INGOT_CHECK(!is_causal || s.S >= s.T, "{}: causal wants S >= T, got S = {}, T = {}", op, s.S, s.T);
  return s;
}

cpu::AttentionProblem check_problem(const AttentionShape& s, const Tensor& doc_start,
                                    const AttentionConfig& config, const char* op) {
  INGOT_CHECK(config.scale > 0, "{}: scale must be above 0, got {}", op, config.scale);
  const AttentionDropout& dropout = config.dropout;
  INGOT_CHECK(dropout.p >= 0 && dropout.p < 1, "{}: dropout's p must be in [0, 1), got {}", op, dropout.p);
  INGOT_CHECK(dropout.p == 0 || dropout.key.purpose == Purpose::kDropout,
              "{}: dropout's key must have the purpose kDropout", op);
  INGOT_CHECK(!dropout.place || (dropout.place.device == Device::kCuda && dropout.place.dtype == DType::i64 &&
                                 dropout.place.shape == Shape{kDropoutPlace}),
              "{}: dropout's place must be ({}) i64 on a device", op, static_cast<int>(kDropoutPlace));
  INGOT_CHECK(dropout.p == 0 || !is_decoding(s), "{}: no dropout where T = 1 and S = {}", op, s.S);
  INGOT_CHECK(config.window >= 0 && (config.window == 0 || config.is_causal),
              "{}: a window must not be negative and is for causal attention, got {}", op, config.window);
  INGOT_CHECK(!config.cu_seqlens || (doc_start && config.cu_seqlens.device == Device::kCuda),
              "{}: cu_seqlens must be on a device, and doc_start with it", op);
  const int64_t window = config.window < s.S ? config.window : 0;
  if (!doc_start) return {s, config.scale, config.is_causal, nullptr, dropout, window};
  INGOT_CHECK(s.S == s.T, "{}: doc_start wants S == T, got S = {}, T = {}", op, s.S, s.T);
  check_tensor(doc_start, DType::i32, {s.B, s.T}, "attention: doc_start");
  const int32_t* starts = doc_start.as<int32_t>();
  for (int64_t i = 0; doc_start.device == Device::kCpu && i < s.B * s.T; ++i)
    INGOT_CHECK(0 <= starts[i] && starts[i] <= i % s.T, "{}: doc_start[{}][{}] must be in [0, {}], got {}",
                op, i / s.T, i % s.T, i % s.T, starts[i]);
  return {s, config.scale, config.is_causal, starts, dropout, window};
}

float* check_scratch(const Tensor& scratch, int64_t wanted, const char* op) {
  INGOT_CHECK(
      scratch && scratch.dtype == DType::f32 && scratch.is_contiguous() && scratch.elements() >= wanted,
      "{}: scratch must be f32 of at least {} elements, got {} {}", op, wanted, name(scratch.dtype),
      scratch.shape.to_string());
  return scratch.as<float>();
}

// The keys before the windows of the queries, which nothing is computed for.
double hidden_by_window(const AttentionShape& s, int64_t window) {
  if (window == 0 || window >= s.S) return 0;
  const auto most = static_cast<double>(s.S - window);  // of the last query; the others have one less each
  const double queries = std::min(static_cast<double>(s.T), most);
  return queries * most - queries * (queries - 1) / 2;
}

// Returns what the only query of every batch row sees.
std::vector<cpu::DecodeKeys> last_keys(const AttentionShape& s, int64_t window) {
  std::vector<cpu::DecodeKeys> keys;
  for (int64_t b = 0; b < s.B; ++b) keys.push_back({b, window > 0 ? s.S - window : 0, s.S});
  return keys;
}

// The work of `products` products of size T x S x D per head. The mask halves those of causal attention.
Work work_of(const AttentionShape& s, const AttentionConfig& config, DType dtype, double products,
             Work traffic, std::string_view form) {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double masked =
      (config.is_causal ? number(s.T) * (number(s.T) - 1) / 2 : 0) + hidden_by_window(s, config.window);
  traffic.flops = products * 2 * number(s.B * s.H * s.D) * (number(s.T) * number(s.S) - masked);
  traffic.dtype = dtype;
  traffic.form = form;
  return traffic;
}

bool has_cudnn() {
  if constexpr (kHasCudnn) return cudnn::is_available();
  return false;
}

// Runs attention on cuDNN if it takes the call, for which `run` returns "", and reports what computes it.
template <typename Run>
[[maybe_unused]] bool runs_on_cudnn(Stream& stream, std::string KernelReport::*pass, const Run& run) {
  std::string why_not = kHasCudnn ? "" : "this build has no cuDNN";
  std::string& computed = cuda::libraries_of(stream).report.*pass;
  if (cuda::libraries_of(stream).survey) return false;
  if constexpr (kHasCudnn) {
    why_not = run();
    if (why_not.empty()) computed = "cuDNN " + cudnn::version();
  }
  if (!why_not.empty()) computed = "Ingot's f32 kernel, not cuDNN: " + why_not;
  return why_not.empty();
}

int64_t elements_of(size_t bytes) {
  return static_cast<int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
}

}  // namespace

int64_t attention_forward_scratch(const AttentionShape& shape, Device device, bool has_documents) {
  if (device == Device::kCuda)
    return has_cudnn() ? elements_of(fused_forward_bytes(shape, has_documents)) : 0;
  return is_decoding(shape) ? cpu::attention_decode_scratch(shape)
                            : cpu::attention_forward_scratch(shape, num_threads());
}

int64_t attention_backward_scratch(const AttentionShape& shape, Device device, bool has_documents) {
  if (device == Device::kCuda) {
    const int64_t own = shape.B * shape.H * shape.T;
    if (!has_cudnn()) return own;
    return std::max(own, elements_of(fused_backward_bytes(shape, has_documents)));
  }
  return cpu::attention_backward_scratch(shape, num_threads());
}

void attention_forward(const AttentionOperands& t, const AttentionConfig& config, const Tensor& scratch,
                       Stream& stream) {
  const char* op = "attention_forward";
  const AttentionShape shape = check_shapes(t, config.is_causal, op);
  const OpSpan span(stream, "attention",
                    work_of(shape, config, t.q.dtype, 2, traffic({t.out, t.lse, t.q, t.k, t.v}), "forward"));
  if (span.plans()) return;
  check_operand(t.out, t.q.dtype, t.q.shape, op, "out");
  if (t.lse) check_tensor(t.lse, DType::f32, {shape.B, shape.H, shape.T}, "attention_forward: lse");
  const cpu::AttentionProblem problem = check_problem(shape, t.doc_start, config, op);
  if (t.out.elements() == 0) return;
  if constexpr (kHasCuda) {
    if (t.q.device == Device::kCuda) {
      const auto run = [&] { return cudnn::attention_forward(t, config, scratch, stream); };
      if (!runs_on_cudnn(stream, &KernelReport::attention_forward, run))
        cuda::attention_forward(t, config, scratch, stream);
      return;
    }
  }
  float* place = check_scratch(scratch, attention_forward_scratch(shape), op);
  float* lse = t.lse ? t.lse.as<float>() : nullptr;
  with_dtype(t.q.dtype, op, [&]<typename T>() {
    const cpu::AttentionViews<T> views{HeadView<T>(t.out), HeadView<T>(t.q), HeadView<T>(t.k),
                                       HeadView<T>(t.v), lse};
    if (is_decoding(shape))
      cpu::attention_decode<T>(problem, views, last_keys(shape, problem.window), place);
    else
      cpu::attention_forward(problem, views, place);
  });
}

void attention_backward(const AttentionGradients& d, const AttentionOperands& t,
                        const AttentionConfig& config, const Tensor& scratch, Stream& stream) {
  const char* op = "attention_backward";
  const AttentionShape shape = check_shapes(t, config.is_causal, op);
  const Work moved = traffic({d.dq, d.dk, d.dv, d.d_out, t.q, t.k, t.v, t.out, t.lse});
  const OpSpan span(stream, "attention", work_of(shape, config, t.q.dtype, 5, moved, "backward"));
  if (span.plans()) return;
  check_operand(d.dq, t.q.dtype, t.q.shape, op, "dq");
  check_operand(d.dk, t.q.dtype, t.k.shape, op, "dk");
  check_operand(d.dv, t.q.dtype, t.k.shape, op, "dv");
  check_operand(d.d_out, t.q.dtype, t.q.shape, op, "d_out");
  check_operand(t.out, t.q.dtype, t.q.shape, op, "out");
  check_tensor(t.lse, DType::f32, {shape.B, shape.H, shape.T}, "attention_backward: lse");
  const cpu::AttentionProblem problem = check_problem(shape, t.doc_start, config, op);
  if (shape.B * shape.K == 0) return;
  if constexpr (kHasCuda) {
    if (t.q.device == Device::kCuda) {
      const auto run = [&] { return cudnn::attention_backward(d, t, config, scratch, stream); };
      if (!runs_on_cudnn(stream, &KernelReport::attention_backward, run))
        cuda::attention_backward(d, t, config, scratch, stream);
      return;
    }
  }
  float* place = check_scratch(scratch, attention_backward_scratch(shape), op);
  with_dtype(t.q.dtype, op, [&]<typename T>() {
    const cpu::AttentionGradients<T> gradients{HeadView<T>(d.dq),    HeadView<T>(d.dk),  HeadView<T>(d.dv),
                                               HeadView<T>(d.d_out), HeadView<T>(t.out), t.lse.as<float>()};
    cpu::attention_backward<T>(problem, gradients, HeadView<T>(t.q), HeadView<T>(t.k), HeadView<T>(t.v),
                               place);
  });
}

}  // namespace ingot
