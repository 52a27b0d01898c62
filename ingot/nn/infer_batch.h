// InferBatch: the tokens that one call of Transformer::infer appends to the caches of several sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ingot/core/tensor.h"

namespace ingot {

// Consecutive tokens of one sequence: positions [first, first + count) of its slot in the caches.
struct InferSegment {
  int64_t slot = 0, first = 0, count = 0;
  int64_t logits = 1;  // the logits of so many of its last tokens are computed
};

class InferBatch {
 public:
  // The shape of the i32 memory for a batch of at most n tokens.
  static Shape ids_shape(int64_t n) { return {4, n}; }

  // Lays the batch out in ids, which is ids_shape(n) in host memory. tokens: those of all segments, in order.
  // positions: of a slot of the caches. With is_padded the numbers of rows and of outputs are rounded up to
  // powers of two by rows of padding, so that products have few shapes, and longest_decode is rounded up, so
  // that calls for single tokens differ in the contents of the ids alone until it changes. REQUIRES: no two
  // segments have the same slot; segments of one token come first; n is at least the number of rows.
  InferBatch(const Tensor& ids, std::vector<InferSegment> segments, std::span<const int32_t> tokens,
             int64_t positions, bool is_padded = false);
  // A batch of one sequence: the tokens at positions first, first + 1 ... of slot 0.
  InferBatch(const Tensor& ids, std::span<const int32_t> tokens, int64_t first, int64_t positions);

  // Returns the same batch with its ids in other memory, which the caller fills with a copy.
  InferBatch with_ids(const Tensor& ids) const;
  const Tensor& ids() const { return ids_; }  // (4, n)

  const std::vector<InferSegment>& segments() const { return segments_; }
  // Rows of the segments of one token; with the padding after them if there are no others.
  int64_t decode_tokens() const { return decode_tokens_; }
  int64_t longest_decode() const { return longest_decode_; }  // at least 1 + the largest position among them
  bool is_decode_only() const { return decode_tokens_ == rows_; }
  int64_t tokens_count() const { return tokens_count_; }
  int64_t rows() const { return rows_; }                // tokens and padding
  int64_t outputs_count() const { return outputs_; }    // tokens whose logits are computed
  int64_t output_rows() const { return output_rows_; }  // the same with padding

  Tensor tokens() const { return row(0, rows_); }          // (rows) i32
  Tensor positions() const { return row(1, rows_); }       // (rows) i32
  Tensor places() const { return row(2, rows_); }          // (rows) i32 of ops/kv_cache.h
  Tensor outputs() const { return row(3, output_rows_); }  // (output_rows) i32: rows whose logits are wanted

 private:
  Tensor row(int64_t i, int64_t n) const { return ids_.rows(i, i + 1).reshape({ids_.dim(1)}).rows(0, n); }

  Tensor ids_;
  std::vector<InferSegment> segments_;
  int64_t decode_tokens_ = 0, longest_decode_ = 0, tokens_count_ = 0, rows_ = 0, outputs_ = 0,
          output_rows_ = 0;
};

}  // namespace ingot
