#include "ingot/optim/batch_ramp.h"

#include <algorithm>

#include "ingot/core/error.h"

namespace ingot {

BatchRamp::BatchRamp(std::vector<BatchStage> stages, int64_t full, int64_t micro_tokens)
    : stages_(std::move(stages)), full_(full), micro_tokens_(micro_tokens) {
  INGOT_CHECK(full >= 1 && micro_tokens >= 1, "BatchRamp: {} micro-batches of {} tokens", full, micro_tokens);
  BatchStage before{.micro_batches = 0, .until_tokens = 0};
  for (const BatchStage& stage : stages_) {
    if (stage.micro_batches <= before.micro_batches || stage.until_tokens <= before.until_tokens)
      fail(ErrorKind::kUsage,
           "train.batch_ramp must rise: \"{} until {}\" cannot stand after \"{} until {}\"",
           stage.micro_batches, stage.until_tokens, before.micro_batches, before.until_tokens);
    before = stage;
  }
  if (before.micro_batches >= full)
    fail(ErrorKind::kUsage,
         "train.batch_ramp must stay below train.grad_accum = {}, which follows it, got {} micro-batches",
         full, before.micro_batches);
}

int64_t BatchRamp::micro_batches(int64_t tokens) const {
  for (const BatchStage& stage : stages_)
    if (tokens < stage.until_tokens) return stage.micro_batches;
  return full_;
}

int64_t BatchRamp::tokens_before(int64_t step) const {
  int64_t tokens = 0;
  for (const BatchStage& stage : stages_) {
    const int64_t size = stage.micro_batches * micro_tokens_;
    const int64_t steps = std::max<int64_t>(0, (stage.until_tokens - tokens + size - 1) / size);
    if (step <= steps) return tokens + step * size;
    tokens += steps * size;
    step -= steps;
  }
  return tokens + step * full_ * micro_tokens_;
}

int64_t BatchRamp::steps_for(int64_t tokens) const {
  int64_t taken = 0, steps = 0;
  const auto take = [&](int64_t micro_batches, int64_t until) {
    const int64_t size = micro_batches * micro_tokens_;
    const int64_t n = std::max<int64_t>(0, (until - taken + size - 1) / size);
    taken += n * size;
    steps += n;
  };
  for (const BatchStage& stage : stages_) take(stage.micro_batches, std::min(stage.until_tokens, tokens));
  take(full_, tokens);
  return steps;
}

}  // namespace ingot
