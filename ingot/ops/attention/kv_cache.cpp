#include "ingot/ops/kv_cache.h"

#include <algorithm>
#include <vector>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/attention/attention_kernels.h"

namespace ingot {

namespace cuda {  // kv_cache.cu
decltype(ingot::append_to_cache) append_to_cache;
decltype(ingot::attention_decode) attention_decode;
int64_t attention_decode_scratch(const AttentionShape& shape);
}  // namespace cuda

namespace {

void check_cache(const KvCache& cache, DType dtype, int64_t K, int64_t D, const char* op) {
  INGOT_CHECK(cache.k && cache.v && cache.k.rank() == 4 && cache.k.dtype == dtype && cache.v.dtype == dtype &&
                  cache.k.shape == cache.v.shape && cache.k.is_contiguous() && cache.v.is_contiguous() &&
                  cache.k.dim(2) == K && cache.k.dim(3) == D,
              "{}: the cache must be (slots, positions, {}, {}) {} and contiguous, got {} and {} {}", op, K,
              D, name(dtype), cache.k.shape.to_string(), cache.v.shape.to_string(), name(cache.k.dtype));
}

// `end`: places must be below it.
void check_places(const Tensor& places, int64_t N, int64_t end, const char* op) {
  INGOT_CHECK(places && places.dtype == DType::i32 && places.shape == Shape{N} && places.is_contiguous(),
              "{}: places must be i32 ({}) and contiguous, got {} {}", op, N, name(places.dtype),
              places.shape.to_string());
  if (places.device != Device::kCpu) return;
  for (int64_t n = 0; n < N; ++n)
    INGOT_CHECK(places.as<int32_t>()[n] < end, "{}: place {} of token {} is outside of a cache of {}", op,
                places.as<int32_t>()[n], n, end);
}

void check_tokens(const Tensor& t, const char* op, const char* operand) {
  check_heads(t, op, operand);
  INGOT_CHECK(t.dim(0) == 1, "{}: {} must be (1, N, heads, D), got {}", op, operand, t.shape.to_string());
}

// Returns what the token at a place sees.
cpu::DecodeKeys keys_of(int64_t place, int64_t positions, int64_t window) {
  if (place < 0) return {};
  const int64_t end = place % positions + 1;
  return {place / positions, window > 0 ? std::max<int64_t>(0, end - window) : 0, end};
}

Work decode_work(const KvCache& cache, const Tensor& q, int64_t longest, Work work) {
  const auto keys = static_cast<double>(q.dim(1) * longest);
  work.bytes += 2 * keys * static_cast<double>(cache.k.dim(2) * cache.k.dim(3)) *
                static_cast<double>(size_bytes(q.dtype));
  work.flops = 4 * keys * static_cast<double>(q.dim(2) * q.dim(3));
  work.dtype = q.dtype;
  work.form = "decode";
  return work;
}

}  // namespace

void append_to_cache(const KvCache& cache, const Tensor& k, const Tensor& v, const Tensor& places,
                     Stream& stream) {
  const char* op = "append_to_cache";
  check_tokens(k, op, "k");
  check_tokens(v, op, "v");
  INGOT_CHECK(k.shape == v.shape && k.dtype == v.dtype, "{}: k is {}, v is {}", op, k.shape.to_string(),
              v.shape.to_string());
  check_cache(cache, k.dtype, k.dim(2), k.dim(3), op);
  const OpSpan span(stream, "cache", traffic({k, k, v, v}));
  if (span.plans()) return;
  const int64_t N = k.dim(1), K = k.dim(2), D = k.dim(3);
  check_places(places, N, cache.slots() * cache.positions(), op);
  if constexpr (kHasCuda) {
    if (k.device == Device::kCuda) return cuda::append_to_cache(cache, k, v, places, stream);
  }
  with_dtype(k.dtype, __func__, [&]<typename T>() {
    const HeadView<T> keys(k), values(v);
    for (int64_t n = 0; n < N; ++n) {
      const int64_t place = places.as<int32_t>()[n];
      for (int64_t h = 0; place >= 0 && h < K; ++h) {
        std::copy_n(keys.at(0, n, h), D, cache.k.as<T>() + (place * K + h) * D);
        std::copy_n(values.at(0, n, h), D, cache.v.as<T>() + (place * K + h) * D);
      }
    }
  });
}

int64_t attention_decode_scratch(const AttentionShape& shape, Device device) {
  if constexpr (kHasCuda) {
    if (device == Device::kCuda) return cuda::attention_decode_scratch(shape);
  }
  return cpu::attention_decode_scratch(shape);
}

void attention_decode(const DecodeOperands& t, const DecodeConfig& config, const Tensor& scratch,
                      Stream& stream) {
  const char* op = "attention_decode";
  const Tensor &out = t.out, &q = t.q, &places = t.places;
  const KvCache& cache = t.cache;
  const int64_t longest = t.longest;
  check_tokens(q, op, "q");
  check_tokens(out, op, "out");
  const int64_t N = q.dim(1), H = q.dim(2), D = q.dim(3), K = cache.k.rank() == 4 ? cache.k.dim(2) : 0;
  check_cache(cache, q.dtype, K, D, op);
  INGOT_CHECK(out.shape == q.shape && out.dtype == q.dtype, "{}: out is {}, q is {}", op,
              out.shape.to_string(), q.shape.to_string());
  INGOT_CHECK(K >= 1 && H % K == 0, "{}: heads must be a multiple of kv heads, got {} and {}", op, H, K);
  INGOT_CHECK(0 < longest && longest <= cache.positions(), "{}: longest must be in [1, {}], got {}", op,
              cache.positions(), longest);
  INGOT_CHECK(config.scale > 0 && config.window >= 0, "{}: scale must be above 0 and window not negative",
              op);
  const OpSpan span(stream, "attention", decode_work(cache, q, longest, traffic({out, q})));
  if (span.plans()) return;
  check_places(places, N, cache.slots() * cache.positions(), op);
  const AttentionShape shape{N, 1, longest, H, K, D};
  const int64_t wanted = attention_decode_scratch(shape, q.device);
  INGOT_CHECK(wanted == 0 || (scratch && scratch.dtype == DType::f32 && scratch.is_contiguous() &&
                              scratch.elements() >= wanted),
              "{}: scratch must be f32 of at least {} elements, got {} {}", op, wanted, name(scratch.dtype),
              scratch.shape.to_string());
  if constexpr (kHasCuda) {
    if (q.device == Device::kCuda) return cuda::attention_decode(t, config, scratch, stream);
  }
  std::vector<cpu::DecodeKeys> keys;
  for (int64_t n = 0; n < N; ++n) {
    keys.push_back(keys_of(places.as<int32_t>()[n], cache.positions(), config.window));
    INGOT_CHECK(keys.back().end <= longest, "{}: token {} sees {} positions, longest is {}", op, n,
                keys.back().end, longest);
  }
  const cpu::AttentionProblem problem{shape, config.scale, true, nullptr, {}, 0};
  const auto by_token = [](Tensor view) {  // (1, N, heads, D) as (N, 1, heads, D)
    view.shape = {view.dim(1), 1, view.dim(2), view.dim(3)};
    view.strides[0] = view.strides[1];
    return view;
  };
  with_dtype(q.dtype, __func__, [&]<typename T>() {
    const cpu::AttentionViews<T> views{HeadView<T>(by_token(out)), HeadView<T>(by_token(q)),
                                       HeadView<T>(cache.k), HeadView<T>(cache.v)};
    cpu::attention_decode(problem, views, keys, scratch.as<float>());
  });
}

}  // namespace ingot
