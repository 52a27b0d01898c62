// A rank of a pipeline has slots for the micro-batches in flight, plans of what their blocks keep, and memory
// for messages.
#include <algorithm>
#include <cmath>

#include "ingot/parallel/pipeline.h"

namespace ingot {

int64_t Pipeline::blocks(int chunk) const {
  const UnitRange range = units(chunk);
  return std::min(range.end, model_.all_units().end - 1) - std::max(range.first, 1);
}

// Makes a slot for each micro-batch that is in flight at one time.
std::vector<Pipeline::Slot> Pipeline::make_slots(Arena& arena, int chunk, const RecomputePlan& plan) const {
  std::vector<Slot> slots(in_flight(chunk));
  slots.front().saved = model_.make_saved(arena, config_.batch.batch, config_.batch.context,
                                          of_stage(plan, chunk), units(chunk));
  for (size_t i = 1; i < slots.size(); ++i) {
    slots[i].saved = slots.front().saved;
    slots[i].saved.take_slot(arena);
  }
  return slots;
}

size_t Pipeline::in_flight(int chunk) const {
  return static_cast<size_t>(micros_in_flight(list_, config_.shape.chunks)[static_cast<size_t>(chunk)]);
}

// The plan of a stage keeps its input, because what came from another stage cannot be made again.
RecomputePlan Pipeline::of_stage(RecomputePlan plan, int chunk) const {
  plan.keeps_embedding |= units(chunk).first > 0;
  return plan;
}

size_t Pipeline::slot_bytes(int chunk, const RecomputePlan& plan) const {
  Arena measure("pipeline plan", arena_memory());
  const size_t bytes = model_.slot_bytes(config_.batch.batch, config_.batch.context, of_stage(plan, chunk),
                                         units(chunk), measure.device());
  for (size_t i = 0; i < in_flight(chunk); ++i) measure.alloc(DType::u8, {static_cast<int64_t>(bytes)});
  return measure.peak_bytes();
}

void Pipeline::choose_plans() {
  const bool is_auto = config_.recompute.policy == RecomputePolicy::kAuto;
  const RecomputeConfig all{.policy = RecomputePolicy::kNone};
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk)
    plans_.push_back(recompute_plan(is_auto ? all : config_.recompute, blocks(chunk)));
  if (is_auto && config_.recompute.budget_bytes > 0) choose_within_budget();
  for (const RecomputePlan& plan : plans_)
    recompute_.blocks.insert(recompute_.blocks.end(), plan.blocks.begin(), plan.blocks.end());
  recompute_.keeps_embedding = plans_.front().keeps_embedding;
}

// Each chunk gets the part of the budget that its activations are of all activations, if everything is kept.
// The bytes of its plans are scaled to those of all chunks, so an error shows the budget as it was set.
void Pipeline::choose_within_budget() {
  Arena measure("pipeline plan", arena_memory());
  make_memory(measure);
  size_t kept_bytes = 0;
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk)
    if (blocks(chunk) > 0) kept_bytes += slot_bytes(chunk, plans_[static_cast<size_t>(chunk)]);
  const size_t fixed_bytes = measure.peak_bytes() - std::min(kept_bytes, measure.peak_bytes());
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk) {
    if (blocks(chunk) == 0) continue;
    RecomputePlan& plan = plans_[static_cast<size_t>(chunk)];
    const double scale = static_cast<double>(kept_bytes) / static_cast<double>(slot_bytes(chunk, plan));
    plan = fastest_plan(blocks(chunk), config_.block_times,
                        static_cast<size_t>(config_.recompute.budget_bytes), [&](const RecomputePlan& tried) {
                          const double own_bytes = static_cast<double>(slot_bytes(chunk, tried));
                          return fixed_bytes + static_cast<size_t>(std::ceil(own_bytes * scale));
                        });
  }
}

Pipeline::Memory Pipeline::make_memory(Arena& arena) const {
  Memory memory;
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk)
    memory.slots.push_back(make_slots(arena, chunk, plans_[static_cast<size_t>(chunk)]));
  const Shape shape{config_.batch.batch, config_.batch.context};
  for (int64_t micro = 0; micro < config_.shape.micros; ++micro) {
    MicroBatch& batch = memory.batches.emplace_back();
    for (Tensor* t : {&batch.tokens, &batch.targets, &batch.doc_start}) *t = arena.alloc(DType::i32, shape);
    if (feed_.is_on_device() && config_.batch.document_mask)
      batch.cu_seqlens = arena.alloc(DType::i32, {DeviceFeed::max_cu_seqlens(config_.batch)});
  }
  const int64_t largest = model_.largest_message(shape[0], shape[1]);
  memory.activation = arena.alloc(model_.compute(), {largest});
  memory.gradient = arena.alloc(model_.compute(), {largest});
  return memory;
}

}  // namespace ingot
