#include "ingot/parallel/stage_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "ingot/core/copy.h"
#include "ingot/core/median.h"
#include "ingot/parallel/pipeline_schedule.h"

namespace ingot {

UnitRange StagePlan::units(int rank, int chunk) const {
  const int number = chunk * ranks + rank;
  const auto stage = static_cast<size_t>(number);
  return {first_units[stage], first_units[stage + 1]};
}

int StagePlan::owner(int unit) const {
  int stage = 0;
  while (first_units[static_cast<size_t>(stage) + 1] <= unit) ++stage;
  return stage % ranks;
}

bool StagePlan::keeps(int rank, int unit) const {
  return owner(unit) == rank || (is_shared(unit) && rank == ranks - 1);
}

std::string StagePlan::to_string() const {
  std::string text = "units ";
  for (size_t s = 0; s + 1 < first_units.size(); ++s) {
    const int first = first_units[s], last = first_units[s + 1] - 1;
    text += fmt::format("{}{}", s > 0 ? " | " : "", first);
    if (last > first) text += fmt::format("-{}", last);
  }
  return text;
}

StagePlan plan_stages(const ModelConfig& model, const ParallelConfig& parallel,
                      const std::vector<double>& costs) {
  INGOT_CHECK(costs.size() == 3, "plan_stages: costs of {} kinds of units", costs.size());
  std::vector<double> all(static_cast<size_t>(model.layers) + 2, costs[1]);
  all.front() = costs[0];
  all.back() = costs[2];
  return {.first_units = split_units(all, static_cast<int>(parallel.pp * parallel.chunks)),
          .ranks = static_cast<int>(parallel.pp),
          .is_tied = model.is_tied};
}

namespace {

// A model of one block, with the inputs of its units.
struct Sample {
  static constexpr int kUnits = 3;
  Transformer model;
  ResidentStore params;
  Fp8State fp8;
  std::vector<Transformer::Saved> saved;  // per unit
  MicroBatch batch;                       // all tokens are 0
  Arena activations, scratch;
  Stream& stream;

  Sample(const RunConfig& run, const ModelConfig& config, int64_t B, const TensorParallel& tp, Stream& at)
      : model(config, run.precision.compute, run.head, {}, tp),
        params(model.params(), run.precision.compute, true, Masters::kF32, at.device),
        fp8(model.fp8_tensors(), 0, 0),
        activations("activations", activation_bytes(B, at.device), memory_of(at.device)),
        scratch("scratch", scratch_bytes(), memory_of(at.device)),
        stream(at) {
    make(activations, B);
    fill_zero(batch.tokens, stream);
    fill_zero(batch.targets, stream);
    init_params(params, run.train.seed, stream);
    params.refresh_compute(stream);
    model.bring_to_device(stream);
    fp8.bring_to_device(stream);
    fp8.begin_step(stream);
  }

  void make(Arena& arena, int64_t B) {
    const int64_t T = model.config().context;
    saved.clear();
    for (int unit = 0; unit < kUnits; ++unit)
      saved.push_back(model.make_saved(arena, B, T, recompute_plan({}, unit == 1 ? 1 : 0), {unit, unit + 1}));
    batch = {.tokens = arena.alloc(DType::i32, {B, T}),
             .targets = arena.alloc(DType::i32, {B, T}),
             .doc_start = {}};
  }
  size_t activation_bytes(int64_t B, Device device) {
    Arena measure("activations plan", memory_of(device));
    make(measure, B);
    return measure.peak_bytes();
  }
  size_t scratch_bytes() const {
    size_t most = 0;
    for (const Transformer::Saved& unit : saved) most = std::max(most, unit.scratch_bytes());
    return most;
  }
  void run(int unit) {
    Region alone;
    LayerContext ctx{
        .params = params, .region = alone, .scratch = scratch, .stream = stream, .dropout = {}, .fp8 = &fp8};
    model.forward(ctx, batch, saved[static_cast<size_t>(unit)], 1.0f);
    model.backward(ctx, batch, saved[static_cast<size_t>(unit)]);
    synchronize(stream);
  }
};

// Returns the median of three calls, after one warm-up call.
double median_s(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::array<double, 3> times_s;
  for (double& time_s : times_s) {
    const auto start = Clock::now();
    call();
    time_s = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return median_of(times_s);
}

ModelConfig with_one_block(ModelConfig model) {
  model.layers = 1;
  model.dropout = 0;
  model.lora.targets = {};  // they may name other blocks
  return model;
}

}  // namespace

BlockTimes measure_block_times(const RunConfig& config, const ModelConfig& model, int64_t B, int tp,
                               Stream& stream) {
  Sample sample(config, with_one_block(model), B, {.rank = 0, .count = tp, .splits_tokens = false}, stream);
  return sample.model.time_block(sample.params, B, model.context, stream);
}

std::vector<double> measure_unit_costs(const RunConfig& config, const ModelConfig& model, int64_t B, int tp,
                                       Stream& stream) {
  Sample sample(config, with_one_block(model), B, {.rank = 0, .count = tp, .splits_tokens = false}, stream);
  std::vector<double> costs;
  for (int unit = 0; unit < Sample::kUnits; ++unit) costs.push_back(median_s([&] { sample.run(unit); }));
  return costs;
}

std::vector<double> nominal_unit_costs(const ModelConfig& model) {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double C = number(model.width);
  double block = number(model.context * model.head_dim * model.heads);
  const Transformer one_block(with_one_block(model), DType::f32);
  for (const ParamSpec& spec : one_block.params().specs())
    if (spec.unit == 1 && spec.role == ParamRole::kMatrix) block += number(spec.elements());
  return {C, block, C * number(model.vocab_padded())};
}

}  // namespace ingot
