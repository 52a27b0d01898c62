#include "ingot/data/given_batches.h"

#include <algorithm>

#include "ingot/core/error.h"
#include "ingot/core/ignore_index.h"

namespace ingot {
namespace {

void check_given_row(std::span<const int32_t> ids, const char* what, int64_t row, int64_t vocab_size,
                     bool may_be_ignored) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if ((ids[i] >= 0 && ids[i] < vocab_size) || (may_be_ignored && ids[i] == kIgnoreIndex)) continue;
    fail(ErrorKind::kUsage, "{}: row {}, column {} is {}; the model has the ids 0 to {}{}", what, row, i,
         ids[i], vocab_size - 1,
         may_be_ignored ? ", and -100 stands for a target that the loss does not count" : "");
  }
}

}  // namespace

GivenBatches::GivenBatches(const BatchShape& shape, int64_t rows, int64_t columns,
                           std::span<const int32_t> tokens, std::span<const int32_t> targets)
    : shape_(shape) {
  const int64_t T = shape.context, B = shape.batch, count = (rows + B - 1) / B;
  const auto given = static_cast<size_t>(rows * columns);
  INGOT_CHECK(tokens.size() == given && targets.size() == given,
              "GivenBatches: {} x {} ids are {}, got {} tokens and {} targets", rows, columns, given,
              tokens.size(), targets.size());
  if (rows < 1 || columns < 1 || columns > T)
    fail(ErrorKind::kUsage, "a batch needs rows of 1 to model.context = {} tokens, got {} rows of {}", T,
         rows, columns);
  const auto elements = static_cast<size_t>(count * B * T);
  tokens_.assign(elements, 0);
  targets_.assign(elements, kIgnoreIndex);
  if (shape.document_mask) doc_start_.assign(elements, 0);
  for (int64_t r = 0; r < rows; ++r) {
    const auto from = static_cast<size_t>(r * columns), n = static_cast<size_t>(columns);
    // The copies are checked, because another thread may write to the caller's rows.
    const auto take = [&](std::vector<int32_t>& all, std::span<const int32_t> ids, const char* what,
                          bool ignores) {
      const std::span<int32_t> row(all.data() + r * T, n);
      std::ranges::copy(ids.subspan(from, n), row.begin());
      check_given_row(row, what, r, shape.vocab_size, ignores);
    };
    take(tokens_, tokens, "tokens", false);
    take(targets_, targets, "targets", true);
    if (shape.document_mask)  // padding is a document of its own
      std::fill(doc_start_.begin() + r * T + columns, doc_start_.begin() + (r + 1) * T,
                static_cast<int32_t>(columns));
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto part = [&](std::vector<int32_t>& all) {
      return Tensor(all.data() + i * B * T, DType::i32, {B, T});
    };
    Batch batch{.tokens = part(tokens_), .targets = part(targets_), .doc_start = {}, .first_sample = i * B};
    if (shape.document_mask) batch.doc_start = part(doc_start_);
    const int32_t* begin = batch.targets.as<int32_t>();
    batch.counted_targets = B * T - std::count(begin, begin + B * T, kIgnoreIndex);
    batches_.push_back(batch);
  }
}

const Batch& GivenBatches::next() {
  INGOT_CHECK(next_ < batches(), "GivenBatches: there is no batch {}", next_);
  return batches_[static_cast<size_t>(next_++)];
}

}  // namespace ingot
