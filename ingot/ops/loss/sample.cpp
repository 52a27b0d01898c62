#include "ingot/ops/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ingot {
namespace {

// Returns a uniform number in [0, 1) with 53 random bits.
double uniform(const RandomKey& key) {
  const Philox4 words = random_block(key, 0);
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

int32_t highest_logit(const float* logits, int64_t vocab) {
  int64_t best = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY)
      fail(ErrorKind::kNumerics, "sample_token: logit of token {} is {}", i, logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (logits[best] == -INFINITY) fail(ErrorKind::kNumerics, "sample_token: all {} logits are -inf", vocab);
  return static_cast<int32_t>(best);
}

// Unnormalised probabilities: exp((logit - top) / temperature), in [0, 1].
struct Weights {
  const float* logits;
  double top, temperature;

  double operator()(int64_t id) const { return std::exp((logits[id] - top) / temperature); }
};

// Returns the first id(i) at which the running sum of weights exceeds target. Tokens of weight 0 are
// never chosen.
template <typename Id>
int32_t pick(int64_t count, const Id& id, const Weights& weight, double target) {
  double sum = 0;
  int32_t chosen = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double w = weight(id(i));
    if (w <= 0) continue;
    chosen = id(i);  // stays the result if rounding keeps the sum from reaching target
    sum += w;
    if (sum > target) break;
  }
  return chosen;
}

// Moves the ids that top_k and top_p retain to the end of ids, the highest last. Returns their number
// and, in *total, the sum of their weights. A heap yields them in order for O(V) plus O(log V) each.
int64_t keep_highest(int32_t* ids, const Weights& weight, int64_t vocab, const SampleConfig& config,
                     double* total) {
  const float* logits = weight.logits;
  const auto ranks_below = [logits](int32_t a, int32_t b) {
    return logits[a] < logits[b] || (logits[a] == logits[b] && a > b);
  };
  std::iota(ids, ids + vocab, 0);
  std::make_heap(ids, ids + vocab, ranks_below);
  const int64_t limit = config.top_k > 0 ? std::min(config.top_k, vocab) : vocab;
  double mass = 0;  // total weight that top_p is relative to
  if (config.top_k == 0)
    for (int64_t i = 0; i < vocab; ++i) mass += weight(i);
  int64_t kept = 0;
  double sum = 0;
  while (kept < limit && (config.top_k > 0 || sum < config.top_p * mass)) {
    std::pop_heap(ids, ids + vocab - kept, ranks_below);
    ++kept;
    sum += weight(ids[vocab - kept]);
  }
  if (config.top_k > 0) {
    mass = sum;
    const int64_t candidates = kept;
    for (kept = 0, sum = 0; kept < candidates && sum < config.top_p * mass;)
      sum += weight(ids[vocab - ++kept]);
  }
  *total = sum;
  return kept;
}

}  // namespace

void SampleConfig::validate() const {
  if (!(temperature >= 0) || temperature == INFINITY)
    fail(ErrorKind::kUsage, "temperature must be 0 or more, got {}", temperature);
  if (top_k < 0) fail(ErrorKind::kUsage, "top-k must be 0 (no limit) or more, got {}", top_k);
  if (!(top_p > 0 && top_p <= 1))
    fail(ErrorKind::kUsage, "top-p must be above 0 and at most 1, got {}", top_p);
}

int32_t sample_token(const Tensor& logits, int64_t vocab, const SampleConfig& config, const RandomKey& key,
                     const Tensor& scratch) {
  config.validate();
  INGOT_CHECK(logits && logits.rank() == 1 && logits.is_contiguous() && 0 < vocab && vocab <= logits.dim(0),
              "sample_token: logits must be contiguous (V) with V >= vocab = {} >= 1, got {}", vocab,
              logits.shape.to_string());
  const float* values = logits.as<float>();
  const int32_t best = highest_logit(values, vocab);
  if (config.temperature == 0) return best;
  const Weights weight{values, values[best], config.temperature};
  if (config.top_k == 0 && config.top_p == 1) {
    double total = 0;
    for (int64_t i = 0; i < vocab; ++i) total += weight(i);
    const auto by_id = [](int64_t i) { return static_cast<int32_t>(i); };
    return pick(vocab, by_id, weight, uniform(key) * total);
  }
  INGOT_CHECK(
      scratch && scratch.dtype == DType::i32 && scratch.is_contiguous() && scratch.elements() >= vocab,
      "sample_token: scratch must be i32 of at least {} elements, got {} {}", vocab, name(scratch.dtype),
      scratch.shape.to_string());
  int32_t* ids = scratch.as<int32_t>();
  double total = 0;
  const int64_t kept = keep_highest(ids, weight, vocab, config, &total);
  const auto by_rank = [&](int64_t i) { return ids[vocab - 1 - i]; };
  return pick(kept, by_rank, weight, uniform(key) * total);
}

}  // namespace ingot
