#include "ingot/train/evaluate.h"

#include <algorithm>
#include <numbers>

namespace ingot {

EvalResult evaluate(const Transformer& model, LayerContext& ctx, Transformer::Saved& saved,
                    const TokenSource& text, int64_t max_tokens, bool has_document_mask) {
  EvalWindows windows(text, {.batch = saved.B,
                             .context = saved.T,
                             .vocab_size = model.config().vocab,
                             .document_mask = has_document_mask});
  LossSums total;
  while (const Batch* batch = windows.next()) {
    const MicroBatch micro{.tokens = batch->tokens, .targets = batch->targets, .doc_start = batch->doc_start};
    const LossSums sums = model.forward(ctx, micro, saved, 0);
    total.add(sums);
    if (max_tokens > 0 && total.counted >= max_tokens) break;
  }
  const double counted = static_cast<double>(std::max<int64_t>(1, total.counted));
  EvalResult result{.loss = total.loss / counted,
                    .top1 = static_cast<double>(total.correct) / counted,
                    .tokens = total.counted,
                    .bits_per_byte = 0};
  if (text.text_bytes() && total.counted > 0) {
    const double part = counted / static_cast<double>(windows.targets());  // of the text, when stopped early
    result.bits_per_byte = total.loss / std::numbers::ln2 / (static_cast<double>(*text.text_bytes()) * part);
  }
  return result;
}

}  // namespace ingot
