// The steps of a trainer whose model is split into pipeline stages on several ranks.
#include <cmath>

#include "ingot/train/trainer.h"

namespace ingot {

StagedStep Trainer::staged_step(Loader& loader, int64_t micros) {
  return {.params = params_,
          .stream = stream_,
          .micros = data_shard_.micros(micros),
          .grad_scale = static_cast<float>(loss_scaler_.scale() / expected_tokens(micros)),
          .next =
              [&loader] {
                const Batch& batch = loader.next();
                return MicroBatch{
                    .tokens = batch.tokens, .targets = batch.targets, .doc_start = batch.doc_start};
              },
          .context =
              [this](int64_t micro) {
                LayerContext ctx = context(static_cast<float>(config_.model.dropout),
                                           data_shard_.first_row(micro) * model_.config().context);
                ctx.fp8 = &fp8_;
                return ctx;
              }};
}

LossSums Trainer::run_stages(Loader& loader, int64_t micros, StepResult& result) {
  StagedStep step = staged_step(loader, micros);
  step.checked_tokens = checked_tokens();
  step.next = [&result, &loader, next = step.next] {
    const MicroBatch batch = next();
    result.wait_s += loader.last_wait_s();
    return batch;
  };
  const LossSums sums = stages_->run(step);
  params_.finish_gradients();
  return sums;
}

// Computes each micro-batch again on all ranks; the rank whose units made the loss not finite finds the
// place.
NonFinite Trainer::find_bad_loss(Loader& loader, int64_t first_sample, int64_t micros) {
  std::optional<NonFinite> found;
  const int64_t end = loader.position();
  loader.seek(first_sample);
  for (int64_t micro = 0; micro < data_shard_.micros(micros); ++micro) {
    StagedStep step = staged_step(loader, micros);
    step.only = micro;
    step.seen = [&](const Transformer::Saved& saved) {
      if (found) return;
      if (const auto place = first_non_finite(params_, saved, stream_))
        found = {NonFinite::Kind::kLoss, data_shard_.number(micro), *place};
    };
    stages_->run(step);
    params_.finish_gradients();
    discard();
  }
  loader.seek(end);
  const NonFinite sum{NonFinite::Kind::kLoss, -1, {"head", "the sum of the losses"}};
  return first_of_ranks(found, reducers().all).value_or(sum);
}

}  // namespace ingot
