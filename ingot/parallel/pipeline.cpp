#include "ingot/parallel/pipeline.h"

#include <chrono>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = PipelineOp::Kind;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t blocks_of(UnitRange units, int head_unit) {
  return std::min(units.end, head_unit) - std::max(units.first, 1);
}

}  // namespace

Pipeline::Pipeline(const Transformer& model, const PipelineConfig& config, Communicator& group)
    : model_(model), config_(config), group_rank_(group.rank()) {
  const PipelineShape& shape = config.shape;
  shape.validate();
  INGOT_CHECK(group.size() == shape.ranks && std::ssize(config.first_units) == shape.stages() + 1,
              "Pipeline: {} ranks and {} stages for a shape of {} and {}", group.size(),
              config.first_units.size(), shape.ranks, shape.stages());
  if (config.recompute.policy == RecomputePolicy::kAuto)
    fail(ErrorKind::kUsage, "activations.policy must not be \"auto\" where parallel.pp = {}", shape.ranks);
  const bool is_end = group_rank_ == 0 || group_rank_ == shape.ranks - 1;
  activations_ = group.split(0, group_rank_, "pp activations");
  gradients_ = group.split(0, group_rank_, "pp gradients");
  tied_ = group.split(is_end ? 0 : 1, group_rank_, "pp tied");
  list_ = pipeline_schedule(shape, group_rank_);
  Arena measure("pipeline plan");
  make_slots(measure);
  arena_ = std::make_unique<Arena>("activations", measure.peak_bytes());
  slots_ = make_slots(*arena_);
}

UnitRange Pipeline::units(int chunk) const {
  const int number = chunk * config_.shape.ranks + group_rank_;
  const auto stage = static_cast<size_t>(number);
  return {config_.first_units[stage], config_.first_units[stage + 1]};
}

bool Pipeline::needs(int unit) const {
  const bool is_last = group_rank_ == config_.shape.ranks - 1;
  if (unit == 0 && is_last && model_.config().is_tied) return true;
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk)
    if (units(chunk).first <= unit && unit < units(chunk).end) return true;
  return false;
}

std::vector<std::vector<Pipeline::Slot>> Pipeline::make_slots(Arena& arena) const {
  std::vector<std::vector<Slot>> slots;
  const std::vector<int64_t> in_flight = micros_in_flight(list_, config_.shape.chunks);
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk) {
    const UnitRange range = units(chunk);
    RecomputePlan plan = recompute_plan(config_.recompute, blocks_of(range, model_.all_units().end - 1));
    if (range.first > 0) plan.keeps_embedding = true;
    std::vector<Slot>& own = slots.emplace_back();
    for (int64_t i = 0; i < in_flight[static_cast<size_t>(chunk)]; ++i) {
      own.emplace_back();
      own.back().saved = model_.make_saved(arena, config_.B, config_.T, plan, range);
    }
  }
  return slots;
}

// The micro-batches of a chunk that are in flight follow each other.
Pipeline::Slot& Pipeline::slot(const PipelineOp& op) {
  std::vector<Slot>& own = slots_[static_cast<size_t>(op.chunk)];
  return own[static_cast<size_t>(op.micro) % own.size()];
}

void Pipeline::receive(Communicator& from_group, const Tensor& t, int from) {
  const auto start = Clock::now();
  from_group.receive(from_group.name(), t, from);
  wait_s_ += seconds_since(start);
}

LossSums Pipeline::run(const std::function<LayerContext(int64_t micro)>& context,
                       std::span<const MicroBatch> batches, float grad_scale) {
  INGOT_CHECK(std::ssize(batches) == config_.shape.micros, "Pipeline::run: {} micro-batches for {}",
              batches.size(), config_.shape.micros);
  const auto start = Clock::now();
  wait_s_ = 0;
  LossSums sums;
  for (const PipelineOp& op : list_) {
    Slot& own = slot(op);
    const MicroBatch& batch = batches[static_cast<size_t>(op.micro)];
    switch (op.kind) {
      case Kind::kReceiveActivation:
        own.gradient.wait();
        receive(*activations_, model_.stage_input(own.saved), previous());
        break;
      case Kind::kForward: {
        LayerContext ctx = context(op.micro);
        sums.add(model_.forward(ctx, batch, own.saved, grad_scale));
        break;
      }
      case Kind::kSendActivation:
        own.activation = activations_->start_send(activations_->name(), own.saved.x, next());
        break;
      case Kind::kReceiveGradient:
        receive(*gradients_, own.saved.d, next());
        break;
      case Kind::kBackward: {
        own.activation.wait();
        LayerContext ctx = context(op.micro);
        model_.backward(ctx, batch, own.saved);
        break;
      }
      case Kind::kSendGradient:
        own.gradient = gradients_->start_send(gradients_->name(), own.saved.d, previous());
        break;
    }
  }
  for (std::vector<Slot>& chunk : slots_)
    for (Slot& own : chunk) own.gradient.wait();
  step_s_ = seconds_since(start);
  return sums;
}

void Pipeline::add_tied_gradients(ParamStore& params) {
  const bool is_end = group_rank_ == 0 || group_rank_ == config_.shape.ranks - 1;
  if (!model_.config().is_tied || config_.shape.ranks == 1 || !is_end) return;
  tied_->all_reduce("tied gradients", params.get(0).grad);
}

}  // namespace ingot
