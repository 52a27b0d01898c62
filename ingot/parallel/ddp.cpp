#include "ingot/parallel/ddp.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ingot/core/float16.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/cast.h"

namespace ingot {
namespace {

// payload = T(grad + residual); residual = the rounding error. If the payload is not finite (the gradient
// overflowed and the step is skipped), the residual is 0, so the next step starts clean.
template <typename T>
void round_with_feedback(const Tensor& payload, const Tensor& grad, const Tensor& residual,
                         const Stream& stream) {
  const WorkSpan span(stream, "cast", traffic({payload, grad, residual, residual}));
  if (span.plans()) return;
  parallel_for(grad.elements(), kGrain, [&](int64_t begin, int64_t end) {
    const float* g = grad.as<float>();
    float* r = residual.as<float>();
    T* p = payload.as<T>();
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float wanted = g[i] + r[i];
      p[i] = T(wanted);
      const float error = wanted - static_cast<float>(p[i]);
      r[i] = std::isfinite(error) ? error : 0.0f;
    }
  });
}

// Returns the number of elements from the start of `first` to the end of `last`, both f32 and in the same
// arena.
int64_t distance(const Tensor& first, const Tensor& last) {
  return last.as<float>() + last.elements() - first.as<float>();
}

// Extra bytes per element of a bucket.
size_t extra_bytes_per_element(const DdpConfig& config) {
  if (config.payload == DType::f32 && config.payload_ends == DType::f32) return 0;
  return size_bytes(DType::bf16) + (config.has_error_feedback ? size_bytes(DType::f32) : 0);
}

// Returns an upper bound: all gradients with their padding, plus the padding of each bucket.
size_t arena_bytes(const ResidentStore& store, const DdpConfig& config) {
  const size_t elements = store.grads_arena().capacity_bytes() / sizeof(float);
  return elements * extra_bytes_per_element(config) +
         static_cast<size_t>(store.list().units()) * 2 * Arena::kDeviceAlign;
}

}  // namespace

void DdpConfig::validate() const {
  for (const auto& [key, dtype] : {std::pair{"payload", payload}, {"payload_ends", payload_ends}})
    if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
      fail(ErrorKind::kUsage, "parallel.{} must be f32, bf16 or f16, got {}", key, name(dtype));
  if (bucket_bytes < 1)
    fail(ErrorKind::kUsage, "parallel.bucket_mb must be above 0 bytes, got {}", bucket_bytes);
  if (has_error_feedback && payload == DType::f32)
    fail(ErrorKind::kUsage,
         "parallel.error_feedback needs parallel.payload = \"bf16\" or \"f16\": f32 loses nothing");
}

DdpStore::DdpStore(ResidentStore& store, Communicator& group, const DdpConfig& config, Stream& stream)
    : TrainingStore(store.list(), store.masters()),
      store_(store),
      group_(group),
      stream_(stream),
      arena_("ddp payload", arena_bytes(store, config), memory_of(stream.device), stream.backing) {
  config.validate();
  INGOT_CHECK(!config.has_error_feedback || stream.device == Device::kCpu,
              "DdpStore: error feedback has no kernel on a CUDA device");
  make_buckets(config);
  arenas_ = store.arenas();
  arenas_.push_back(&arena_);
}

DdpStore::~DdpStore() {
  for (Pending& pending : pending_) pending.wait();
}

DType DdpStore::payload_of(int unit, const DdpConfig& config) const {
  return unit == 0 || unit + 1 == list().units() ? config.payload_ends : config.payload;
}

// Makes buckets from the head to the embedding, the order of backward.
void DdpStore::make_buckets(const DdpConfig& config) {
  bucket_of_.resize(static_cast<size_t>(list().units()));
  for (int unit = list().units() - 1; unit >= 0; --unit) {
    if (list().unit_elements(unit) == 0) continue;  // on another pipeline stage
    const Tensor grad = store_.get(unit).grad;
    const bool joins = !buckets_.empty() &&
                       payload_of(unit, config) == payload_of(buckets_.back().first_unit, config) &&
                       distance(grad, store_.get(buckets_.back().last_unit).grad) * 4 <= config.bucket_bytes;
    if (!joins)
      buckets_.push_back({.first_unit = unit, .last_unit = unit, .grad = {}, .payload = {}, .residual = {}});
    buckets_.back().first_unit = unit;
    ++buckets_.back().units;
    bucket_of_[static_cast<size_t>(unit)] = buckets_.size() - 1;
  }
  for (Bucket& b : buckets_) {
    const Tensor first = store_.get(b.first_unit).grad;
    const Shape shape{distance(first, store_.get(b.last_unit).grad)};
    b.name = fmt::format("gradients {}", &b - buckets_.data());
    b.grad = Tensor(first.data, DType::f32, shape, first.device);
    const DType payload = payload_of(b.first_unit, config);
    if (payload != DType::f32) b.payload = arena_.alloc(payload, shape);
    if (config.has_error_feedback && b.payload) b.residual = arena_.alloc(DType::f32, shape);
    missing_.push_back(b.units);
  }
  pending_.resize(buckets_.size());
}

void DdpStore::grad_ready(int unit) {
  store_.grad_ready(unit);
  if (!is_last_micro_) return;
  const size_t bucket = bucket_of_[static_cast<size_t>(unit)];
  INGOT_CHECK(missing_[bucket] > 0, "DdpStore: unit {} is ready twice in one micro-batch", unit);
  if (--missing_[bucket] == 0) start(bucket);
}

void DdpStore::start(size_t bucket) {
  const Bucket& b = buckets_[bucket];
  if (b.residual && b.payload.dtype == DType::bf16)
    round_with_feedback<bf16>(b.payload, b.grad, b.residual, stream_);
  else if (b.residual)
    round_with_feedback<f16>(b.payload, b.grad, b.residual, stream_);
  else if (b.payload)
    cast(b.payload, b.grad, stream_);
  pending_[bucket] = group_.start_all_reduce(b.name, b.payload ? b.payload : b.grad);
}

void DdpStore::finish_gradients() {
  if (!is_last_micro_) return;
  const Span span(stream_.trace, "communication");
  using Clock = std::chrono::steady_clock;
  exposed_s_ = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    INGOT_CHECK(missing_[i] == 0, "DdpStore: {} units of bucket {} had no gradients in this step",
                missing_[i], i);
    const Clock::time_point begin = Clock::now();
    pending_[i].wait();
    exposed_s_ += std::chrono::duration<double>(Clock::now() - begin).count();
    if (b.payload) cast(b.grad, b.payload, stream_);
    missing_[i] = b.units;
  }
}

}  // namespace ingot
