#include "ingot/parallel/replica_sum.h"

#include <algorithm>
#include <utility>

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
size_t arena_bytes(ResidentStore& store, const DdpConfig& config) {
  const size_t elements = store.grads_arena().capacity_bytes() / sizeof(float);
  return elements * extra_bytes_per_element(config) +
         static_cast<size_t>(store.held().units()) * 2 * Arena::kDeviceAlign;
}

// Makes buckets from the head to the embedding, the order of backward.
std::vector<GradientBucket> make_buckets(ResidentStore& store, const DdpConfig& config, Arena& arena) {
  const ParamList& list = store.held();
  const int units = list.units();
  std::vector<GradientBucket> buckets;
  for (int unit = units - 1; unit >= 0; --unit) {
    if (list.unit_elements(unit) == 0) continue;  // on another pipeline stage
    const Tensor grad = store.buffers(unit).grad;
    const bool joins =
        !buckets.empty() &&
        config.payload.of_unit(unit, units) == config.payload.of_unit(buckets.back().first_unit, units) &&
        distance(grad, store.buffers(buckets.back().last_unit).grad) * 4 <= config.bucket_bytes;
    if (!joins) buckets.push_back({.first_unit = unit, .last_unit = unit, .grad = {}});
    buckets.back().first_unit = unit;
  }
  for (GradientBucket& b : buckets) {
    const Tensor first = store.buffers(b.first_unit).grad;
    const Shape shape{distance(first, store.buffers(b.last_unit).grad)};
    b.name = fmt::format("gradients {}", &b - buckets.data());
    b.grad = Tensor(first.data, DType::f32, shape, first.device);
    const DType payload = config.payload.of_unit(b.first_unit, units);
    if (payload != DType::f32) b.payload = arena.alloc(payload, shape);
    if (config.payload.has_error_feedback && b.payload) b.residual = arena.alloc(DType::f32, shape);
  }
  return buckets;
}

}  // namespace

void DdpConfig::validate() const {
  payload.validate();
  if (bucket_bytes < 1)
    fail(ErrorKind::kUsage, "parallel.bucket_mb must be above 0 bytes, got {}", bucket_bytes);
}

std::unique_ptr<ReplicaSum> replica_sum(ResidentStore& store, Communicator& group, const DdpConfig& config,
                                        Stream& stream) {
  config.validate();
  auto arena = std::make_unique<Arena>("ddp payload", arena_bytes(store, config), memory_of(stream.device),
                                       stream.backing);
  std::vector<GradientBucket> buckets = make_buckets(store, config, *arena);
  return std::make_unique<ReplicaSum>(group, std::move(buckets), stream, std::move(arena));
}

ReplicaSum::ReplicaSum(Communicator& group, std::vector<GradientBucket> buckets, Stream& stream,
                       std::unique_ptr<Arena> arena)
    : GradientReduction(When::kUnit),
      group_(group),
      stream_(stream),
      arena_(std::move(arena)),
      buckets_(std::move(buckets)) {}

ReplicaSum::~ReplicaSum() {
  for (GradientBucket& b : buckets_) b.sum.wait();
}

void ReplicaSum::start_unit(int unit, const std::vector<bool>& is_complete) {
  const auto b = std::ranges::find_if(
      buckets_, [&](const GradientBucket& x) { return x.first_unit <= unit && unit <= x.last_unit; });
  if (b == buckets_.end()) return;
  for (int u = b->first_unit; u <= b->last_unit; ++u)
    if (!is_complete[static_cast<size_t>(u)]) return;
  if (b->payload) round_gradients(b->payload, b->grad, b->residual, stream_);
  b->sum = group_.start_all_reduce(b->name, b->payload ? b->payload : b->grad);
  b->is_under_way = true;
}

void ReplicaSum::wait() {
  const Span span(stream_.trace, "communication");
  for (GradientBucket& b : buckets_) {
    if (!b.is_under_way) continue;
    b.is_under_way = false;
    b.sum.wait();
    if (b.payload) cast(b.grad, b.payload, stream_);
  }
}

std::vector<GradientSum> ReplicaSum::sums() const {
  std::vector<GradientSum> sums;
  for (const GradientBucket& b : buckets_) sums.push_back({.group = group_.name(), .memory = b.grad});
  return sums;
}

}  // namespace ingot
