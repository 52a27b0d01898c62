#include "ingot/parallel/ddp.h"

#include <algorithm>
#include <chrono>

#include "ingot/ops/cast.h"

namespace ingot {
namespace {

// Returns the number of elements from the start of `first` to the end of `last`, both f32 and in the same
// arena.
int64_t distance(const Tensor& first, const Tensor& last) {
  return last.as<float>() + last.elements() - first.as<float>();
}

// Extra bytes per element of a bucket.
size_t extra_bytes_per_element(const DdpConfig& config) {
  if (config.payload.blocks == DType::f32 && config.payload.ends == DType::f32) return 0;
  return size_bytes(DType::bf16) + (config.payload.has_error_feedback ? size_bytes(DType::f32) : 0);
}

// Returns an upper bound: all gradients with their padding, plus the padding of each bucket.
size_t arena_bytes(const ResidentStore& store, const DdpConfig& config) {
  const size_t elements = store.grads_arena().capacity_bytes() / sizeof(float);
  return elements * extra_bytes_per_element(config) +
         static_cast<size_t>(store.list().units()) * 2 * Arena::kDeviceAlign;
}

}  // namespace

void DdpConfig::validate() const {
  payload.validate();
  if (bucket_bytes < 1)
    fail(ErrorKind::kUsage, "parallel.bucket_mb must be above 0 bytes, got {}", bucket_bytes);
}

DdpStore::DdpStore(ResidentStore& store, Communicator& group, const DdpConfig& config, Stream& stream)
    : TrainingStore(store.list(), store.masters()),
      store_(store),
      group_(group),
      stream_(stream),
      arena_("ddp payload", arena_bytes(store, config), memory_of(stream.device), stream.backing) {
  config.validate();
  make_buckets(config);
  arenas_ = store.arenas();
  arenas_.push_back(&arena_);
}

DdpStore::~DdpStore() {
  for (Pending& pending : pending_) pending.wait();
}

// Makes buckets from the head to the embedding, the order of backward.
void DdpStore::make_buckets(const DdpConfig& config) {
  const int units = list().units();
  bucket_of_.resize(static_cast<size_t>(units));
  for (int unit = units - 1; unit >= 0; --unit) {
    if (list().unit_elements(unit) == 0) continue;  // on another pipeline stage
    const Tensor grad = store_.get(unit).grad;
    const bool joins =
        !buckets_.empty() &&
        config.payload.of_unit(unit, units) == config.payload.of_unit(buckets_.back().first_unit, units) &&
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
    const DType payload = config.payload.of_unit(b.first_unit, units);
    if (payload != DType::f32) b.payload = arena_.alloc(payload, shape);
    if (config.payload.has_error_feedback && b.payload) b.residual = arena_.alloc(DType::f32, shape);
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

void DdpStore::begin_micro(bool is_last) {
  is_last_micro_ = is_last;
  is_replayed_ = false;
}

void DdpStore::replayed(const StoreState& after) {
  store_.replayed(after);
  is_replayed_ = true;
}

void DdpStore::start(size_t bucket) {
  Bucket& b = buckets_[bucket];
  b.is_under_way = true;
  if (b.payload) round_gradients(b.payload, b.grad, b.residual, stream_);
  pending_[bucket] = group_.start_all_reduce(b.name, b.payload ? b.payload : b.grad);
}

void DdpStore::join() {
  using Clock = std::chrono::steady_clock;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& b = buckets_[i];
    if (!b.is_under_way) continue;
    b.is_under_way = false;
    const Clock::time_point begin = Clock::now();
    pending_[i].wait();
    exposed_s_ += std::chrono::duration<double>(Clock::now() - begin).count();
    if (b.payload) cast(b.grad, b.payload, stream_);
  }
}

void DdpStore::finish_gradients() {
  if (!is_last_micro_ || is_replayed_) return;
  const Span span(stream_.trace, "communication");
  exposed_s_ = 0;
  join();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    INGOT_CHECK(missing_[i] == 0, "DdpStore: {} units of bucket {} had no gradients in this step",
                missing_[i], i);
    missing_[i] = buckets_[i].units;
  }
}

}  // namespace ingot
