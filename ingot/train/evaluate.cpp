#include "ingot/train/evaluate.h"

#include <algorithm>
#include <array>
#include <numbers>
#include <optional>

namespace ingot {

EvalResult evaluate(Executor& executor, LayerContext& ctx, const TokenSource& text, const EvalWalk& walk,
                    Communicator& data) {
  const DataShard& data_shard = walk.data_shard;
  const int64_t T = walk.shape.context;
  EvalWindows windows(text, walk.shape, data_shard.ranks, data_shard.rank);
  const int64_t step_tokens = data_shard.global_batch * T;
  const int64_t wanted = walk.max_tokens > 0
                             ? (walk.max_tokens + step_tokens - 1) / step_tokens * data_shard.global_batch
                             : windows.windows();
  LossSums total;
  windows.end_at(wanted);
  const int64_t all_tokens = std::min(wanted * T, windows.targets());
  int64_t walked = 0;
  bool should_continue = true;
  while (const Batch* batch = should_continue ? windows.next() : nullptr) {
    total.add(executor.forward(ctx, *batch));
    walked = std::min(walked + data_shard.ranks * data_shard.batch_size * T, all_tokens);
    if (walk.should_continue) should_continue = walk.should_continue(walked, all_tokens);
  }
  std::array<double, 3> all{total.loss, static_cast<double>(total.counted),
                            static_cast<double>(total.correct)};
  data.sum(all);
  const double counted = std::max(1.0, all[1]);
  EvalResult result{.loss = all[0] / counted,
                    .top1 = all[2] / counted,
                    .tokens = static_cast<int64_t>(all[1]),
                    .text_tokens = windows.targets(),
                    .bits_per_byte = 0,
                    .is_complete = should_continue};
  if (text.references()) result.text_tokens = result.tokens;  // pairs
  // The windows of all ranks follow each other, so that the predicted tokens are those behind the first one.
  if (const std::optional<int64_t> bytes = text.bytes_of(1, result.tokens); bytes.value_or(0) > 0)
    result.bits_per_byte = all[0] / std::numbers::ln2 / static_cast<double>(*bytes);
  return result;
}

std::vector<double> score_documents(Executor& executor, LayerContext& ctx, const TokenSource& text,
                                    const EvalWalk& walk, Communicator& data) {
  std::vector<double> log_p(text.documents().positions.size());
  const int64_t T = walk.shape.context;
  EvalWindows windows(text, walk.shape, walk.data_shard.ranks, walk.data_shard.rank);
  int64_t walked = 0;
  while (const Batch* batch = windows.next()) {
    Batch plain = *batch;
    plain.reference = {};
    executor.forward(ctx, plain);
    const float* loss = executor.parts().back()->in_evaluation.losses.as<float>();
    const int32_t *target = batch->targets.as<int32_t>(), *start = batch->doc_start.as<int32_t>();
    for (int64_t i = 0; i < batch->targets.elements(); ++i)
      if (target[i] != kIgnoreIndex)
        log_p[text.document_of(batch->first_sample * T + i / T * T + start[i])] -=
            static_cast<double>(loss[i]);
    walked = std::min(walked + walk.data_shard.global_batch * T, text.tokens());
    if (walk.should_continue) walk.should_continue(walked, text.tokens());
  }
  data.sum(log_p);
  return log_p;
}

}  // namespace ingot
