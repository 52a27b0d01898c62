// GivenBatches makes batches of a caller's own rows of tokens and targets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ingot/data/loader.h"

namespace ingot {

class GivenBatches final : public BatchSource {
 public:
  // Lays out the rows as whole batches. tokens and targets: rows x columns ids, row by row; a target may be
  // kIgnoreIndex. Rows shorter than the context and the last batch are padded with positions that have no
  // target; every row is one document. Throws a kUsage error that names the row and the column of an id that
  // the model has not, or for rows longer than the context.
  GivenBatches(const BatchShape& shape, int64_t rows, int64_t columns, std::span<const int32_t> tokens,
               std::span<const int32_t> targets);
  GivenBatches(GivenBatches&&) = default;

  int64_t batches() const { return static_cast<int64_t>(batches_.size()); }
  // REQUIRES: fewer than batches() were returned since the last seek.
  const Batch& next() override;
  void seek(int64_t sample) override { next_ = sample / shape_.batch; }
  int64_t position() const override { return next_ * shape_.batch; }

 private:
  BatchShape shape_;
  std::vector<int32_t> tokens_, targets_, doc_start_;
  std::vector<Batch> batches_;
  int64_t next_ = 0;
};

}  // namespace ingot
