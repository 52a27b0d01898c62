#include "ingot/train/recompute_choice.h"

#include <array>

#include "ingot/core/copy.h"
#include "ingot/ops/fill_normal.h"

namespace ingot {

bool needs_block_times(const RecomputeConfig& config) {
  return config.policy == RecomputePolicy::kAuto && config.budget_bytes > 0;
}

BlockTimes nominal_block_times() {
  return {
      .norm_s = 1, .activation_s = 1, .heads_s = 8, .proj_s = 2, .pre_s = 8, .down_s = 4, .embedding_s = 1};
}

BlockTimes agreed_block_times(BlockTimes times, Communicator& all) {
  double* const parts[] = {&times.norm_s, &times.activation_s, &times.heads_s,    &times.proj_s,
                           &times.pre_s,  &times.down_s,       &times.embedding_s};
  std::array<double, std::size(parts)> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = *parts[i];
  all.max(values);
  for (size_t i = 0; i < values.size(); ++i) *parts[i] = values[i];
  return times;
}

size_t activation_bytes(const Transformer& model, int64_t B, int64_t T, const RecomputePlan& plan,
                        Device device) {
  Arena arena("activations plan", memory_of(device));
  arena.alloc(DType::u8, {static_cast<int64_t>(model.slot_bytes(B, T, plan, model.all_units(), device))});
  return arena.peak_bytes();
}

RecomputePlan choose_recompute(const RunConfig& config, Transformer& model, ParamStore& params, int64_t B,
                               Communicator& all, Stream& stream) {
  const int64_t layers = model.config().layers, T = config.model.context;
  if (config.activations.policy != RecomputePolicy::kAuto) return recompute_plan(config.activations, layers);
  if (!needs_block_times(config.activations))
    return recompute_plan({.policy = RecomputePolicy::kNone}, layers);
  BlockTimes times = nominal_block_times();
  if (stream.backing == Backing::kMemory) {
    model.bring_to_device(stream);
    // The weights are random while products are timed: products of zeros are faster than those of a run.
    params.wait_weights(1);
    const UnitBuffers& block = params.buffers(1);
    for (const Tensor& weights : {block.master, block.compute})
      if (weights) fill_normal(weights, 0.02f, stream);
    times = agreed_block_times(model.time_block(params, B, T, stream), all);
    for (const Tensor& weights : {block.master, block.compute})
      if (weights) fill_zero(weights, stream);
  }
  return fastest_plan(
      layers, times, static_cast<size_t>(config.activations.budget_bytes),
      [&](const RecomputePlan& plan) { return activation_bytes(model, B, T, plan, stream.device); });
}

}  // namespace ingot
