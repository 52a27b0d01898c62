#include "ingot/config/run_plan.h"

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

RunLength run_length(const TrainConfig& train) {
  if (train.max_time_s > 0) return {RunUnit::kTime, train.max_time_s};
  if (train.max_tokens > 0) return {RunUnit::kTokens, static_cast<double>(train.max_tokens)};
  return {RunUnit::kSteps, static_cast<double>(train.steps)};
}

}  // namespace

void complete_epochs(RunConfig& config, int64_t windows) {
  TrainConfig& train = config.train;
  if (train.epochs == 0) return;
  const int64_t context = config.model.context;
  const BatchRamp ramp(train.batch_ramp, train.grad_accum, train.batch_size * context);
  const double samples = std::ceil(train.epochs * static_cast<double>(windows));
  train.steps = std::max<int64_t>(1, ramp.steps_for(static_cast<int64_t>(samples) * context));
  train.epochs = 0;
  config.validate();
}

RunPlan::RunPlan(const RunConfig& config)
    : peak_lr_(config.optimizer.lr),
      momentum_(Optimizer::configured_momentum(config.optimizer)),
      length_(run_length(config.train)),
      ramp_(config.train.batch_ramp, config.train.grad_accum, config.train.batch_size * config.model.context),
      schedule_(config.schedule, length_, ramp_),
      steps_(length_.unit == RunUnit::kTokens ? ramp_.steps_for(config.train.max_tokens)
                                              : config.train.steps) {}

double RunPlan::progress(const RunPosition& p) const {
  const double done = length_.unit == RunUnit::kSteps    ? static_cast<double>(p.step)
                      : length_.unit == RunUnit::kTokens ? static_cast<double>(p.tokens)
                                                         : p.time_s;
  return std::min(1.0, done / length_.total);
}

}  // namespace ingot
