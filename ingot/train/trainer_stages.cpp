// The steps of a trainer whose model several ranks have in stages.
#include <cmath>

#include "ingot/train/trainer.h"

namespace ingot {

StagedStep Trainer::staged_step(Loader& loader, int64_t micros) {
  return {.params = params_,
          .stream = stream_,
          .micros = share_.micros(micros),
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
                                           share_.first_row(micro) * model_.config().context);
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

// Which rank's units made it so is known where it is looked for on all of them: each micro-batch once more.
NonFinite Trainer::find_bad_loss(Loader& loader, int64_t first_sample, int64_t micros) {
  std::optional<NonFinite> found;
  const int64_t end = loader.position();
  loader.seek(first_sample);
  for (int64_t micro = 0; micro < share_.micros(micros); ++micro) {
    StagedStep step = staged_step(loader, micros);
    step.only = micro;
    step.seen = [&](const Transformer::Saved& saved) {
      if (found) return;
      if (const auto place = first_non_finite(params_, saved, stream_))
        found = {NonFinite::Kind::kLoss, share_.number(micro), *place};
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
