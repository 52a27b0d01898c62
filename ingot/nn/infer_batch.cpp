#include "ingot/nn/infer_batch.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ingot/ops/kv_cache.h"

namespace ingot {
namespace {

int64_t padded(int64_t n, bool is_padded) {
  return is_padded ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))) : n;
}

}  // namespace

InferBatch::InferBatch(const Tensor& ids, std::vector<InferSegment> segments, std::span<const int32_t> tokens,
                       int64_t positions, bool is_padded)
    : ids_(ids),
      segments_(std::move(segments)),
      tokens_count_(std::ssize(tokens)),
      rows_(padded(tokens_count_, is_padded)) {
  INGOT_CHECK(ids && ids.dtype == DType::i32 && ids.rank() == 2 && ids.dim(0) == 4 && 0 < tokens_count_ &&
                  rows_ <= ids.dim(1),
              "InferBatch: {} rows of {} tokens do not fit ids of {}", rows_, tokens_count_,
              ids.shape.to_string());
  int32_t* place_of[4];
  for (int64_t i = 0; i < 4; ++i) place_of[i] = ids.as<int32_t>() + i * ids.dim(1);
  const auto [token, position, place, output] = place_of;
  int64_t n = 0;
  for (const InferSegment& s : segments_) {
    INGOT_CHECK(s.count > 0 && s.first >= 0 && s.first + s.count <= positions && n + s.count <= tokens_count_,
                "InferBatch: {} tokens do not fit after {} of {} positions", s.count, s.first, positions);
    INGOT_CHECK(s.logits >= 0 && s.logits <= s.count, "InferBatch: logits of {} tokens of {}", s.logits,
                s.count);
    INGOT_CHECK(s.count > 1 || n == decode_tokens_, "InferBatch: segments of one token must come first");
    if (s.count == 1) {
      ++decode_tokens_;
      longest_decode_ = std::max(longest_decode_, s.first + 1);
    }
    for (int64_t i = 0; i < s.count; ++i, ++n) {
      token[n] = tokens[static_cast<size_t>(n)];
      position[n] = static_cast<int32_t>(s.first + i);
      place[n] = static_cast<int32_t>(s.slot * positions + s.first + i);
    }
    for (int64_t i = n - s.logits; i < n; ++i) output[outputs_++] = static_cast<int32_t>(i);
  }
  INGOT_CHECK(n == tokens_count_, "InferBatch: {} tokens for segments of {}", tokens_count_, n);
  for (; n < rows_; ++n) {
    token[n] = position[n] = 0;
    place[n] = -1;
  }
  if (decode_tokens_ == tokens_count_) decode_tokens_ = rows_;
  if (is_padded)
    longest_decode_ = std::min((longest_decode_ + kDecodeSlice - 1) / kDecodeSlice * kDecodeSlice, positions);
  output_rows_ = outputs_ > 0 ? padded(outputs_, is_padded) : 0;
  std::fill(output + outputs_, output + output_rows_, 0);
}

InferBatch::InferBatch(const Tensor& ids, std::span<const int32_t> tokens, int64_t first, int64_t positions)
    : InferBatch(ids, {{.slot = 0, .first = first, .count = std::ssize(tokens)}}, tokens, positions) {}

InferBatch InferBatch::with_ids(const Tensor& ids) const {
  INGOT_CHECK(ids.shape == ids_.shape && ids.dtype == ids_.dtype, "InferBatch: ids are {}, want {}",
              ids.shape.to_string(), ids_.shape.to_string());
  InferBatch other = *this;
  other.ids_ = ids;
  return other;
}

}  // namespace ingot
