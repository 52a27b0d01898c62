#include "ingot/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "ingot/config/data_shard.h"
#include "ingot/config/device_support.h"
#include "ingot/config/run_plan.h"
#include "ingot/console/console.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/parallel.h"
#include "ingot/memory/activation_budget.h"
#include "ingot/memory/memory_check.h"
#include "ingot/nn/models/model.h"
#include "ingot/parallel/coverage.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/parallel/stage_plan.h"
#include "ingot/plan/machine_costs.h"

namespace ingot {

std::vector<ModelPart> model_parts(const ModelConfig& c) {
  ModelPart embedding{"embedding"}, linears{"attention linears"}, mlp{"mlp"}, norms{"norms"},
      scalars{"scalars"}, head{"head"};
  const auto part_of = [&](const ParamSpec& spec) -> ModelPart& {
    switch (spec.role) {
      case ParamRole::kEmbedding:
      case ParamRole::kPosition:
        return embedding;
      case ParamRole::kHead:
        return head;
      case ParamRole::kNorm:
        return norms;
      case ParamRole::kScalar:
        return scalars;
      case ParamRole::kMatrix:
      case ParamRole::kBias:
        break;
    }
    return spec.name.find(".attention.") == std::string::npos ? mlp : linears;
  };
  const ParamList params = parameters_of(c);
  for (const ParamSpec& spec : params.specs()) {
    ModelPart& part = part_of(spec);
    part.parameters += elements_without_padding(spec);
    if (spec.role == ParamRole::kMatrix)
      part.flops_per_token += flops_per_weight(params, spec) * static_cast<double>(spec.elements());
  }
  head.flops_per_token = (c.lora.rank > 0 ? 4.0 : 6.0) * static_cast<double>(c.vocab * c.width);
  std::vector<ModelPart> parts{embedding, linears, {"attention", 0, c.attention_flops_per_token()},
                               mlp,       norms,   head};
  if (scalars.parameters > 0) parts.insert(parts.end() - 1, scalars);
  return parts;
}

std::vector<RankMemory> plan_rank_memory(const RunConfig& config) {
  const MeshShape shape = mesh_shape(config.parallel);
  const bool is_device = config.train.device == Device::kCuda;
  const std::vector<int> classes = rank_classes(config, shape);
  PlanBoard board;
  tell_all_ranks(config, shape, {.board = &board});
  std::vector<RankMemory> memory;
  std::map<std::pair<int, int>, size_t> known;  // class and shard -> index into memory
  for (int rank = 0; rank < shape.size(); ++rank) {
    const auto [at, is_new] =
        known.try_emplace({classes[static_cast<size_t>(rank)], place_of(shape, rank).shard});
    if (is_new) {
      StepRecorder recorder(Backing::kAddresses);
      const MemoryPlan plan =
          plan_memory(config, shape, rank, recorded_groups(recorder, config, shape, rank, &board));
      const auto equal = std::ranges::find(memory, plan.items, &RankMemory::items);
      at->second = static_cast<size_t>(equal - memory.begin());
      if (equal == memory.end())
        memory.push_back({.ranks = {},
                          .items = plan.items,
                          .peak_bytes = is_device ? plan.device_bytes() : plan.host_bytes()});
    }
    memory[at->second].ranks.push_back(rank);
  }
  return memory;
}

namespace {

constexpr int kMaxProcesses = 8;  // processes that measure at the same time

// Says whether the memory fits and, if not, what would.
void compare_memory(const PlanTarget& target, Plan& plan) {
  uint64_t largest = 0, all = 0;
  int worst = 0;
  for (const RankMemory& rank : plan.memory) {
    all += rank.peak_bytes * rank.ranks.size();
    if (rank.peak_bytes <= largest) continue;
    largest = rank.peak_bytes;
    worst = rank.ranks.front();
  }
  const uint64_t needed = target.is_machine ? all : largest;
  plan.fits = needed <= target.memory_bytes;
  if (plan.fits) return;
  const auto text = [](uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  plan.unfit = fmt::format(
      "{} {}, {} has {}", target.is_machine ? "the ranks together take" : fmt::format("rank {} takes", worst),
      text(needed), target.memory_source, text(target.memory_bytes));
  // The proposals are those of `ingot train`, for one rank.
  const MeshShape shape = mesh_shape(plan.config.parallel);
  const auto share =
      target.is_machine ? target.memory_bytes / static_cast<uint64_t>(shape.size()) : target.memory_bytes;
  RunConfig config = plan.config;
  config.train.is_overcommitted = false;
  if (!plan.refused.empty()) config.train.device = Device::kCpu;
  MemoryLimits limits;
  limits.host.source = limits.device.source = target.memory_source;
  (config.train.device == Device::kCuda ? limits.device : limits.host).bytes = share;
  try {
    const Mesh mesh = Mesh::planned(shape, worst);
    check_memory(config, mesh, limits);
  } catch (const Error& error) {
    const std::string all_text = error.what();
    const size_t first = all_text.find('\n'), last = all_text.rfind('\n');
    if (first != std::string::npos && last > first) plan.unfit += all_text.substr(first, last - first);
  }
}

// A description without a compute capability has every FP8 format, or none if it has no FP8 units.
int capability_of(const Hardware::Device& device) {
  const double known = device.compute_capability > 0 ? device.compute_capability
                       : device.fp8_flops > 0        ? 9.0
                                                     : 8.0;
  return static_cast<int>(std::lround(10 * known));
}

// Plans the memory of plan.config, without the copy for checkpoints if it does not fit otherwise, as `ingot
// train` does.
void plan_memory_of_ranks(const PlanTarget& target, Plan& plan) {
  plan.memory = plan_rank_memory(plan.config);
  compare_memory(target, plan);
  if (plan.fits || !plan.config.checkpoint.copies_state()) return;
  plan.config.checkpoint.has_room = false;
  plan.memory = plan_rank_memory(plan.config);
  plan.unfit.clear();
  compare_memory(target, plan);
}

StepPlan summarise(const Plan& plan, const JobRecord& job, const OpCosts& costs) {
  const TrainConfig& train = plan.config.train;
  StepPlan step;
  step.step_s = plan.schedule.step_s;
  step.tokens = static_cast<double>(train.batch_size * train.grad_accum * plan.config.model.context);
  step.parts = time_by_part(job.records[0], costs);
  step.exposed_comm_s = plan.schedule.exposed() * step.step_s;
  step.bubble = plan.schedule.bubble();
  for (const WaitOutcome& wait : plan.schedule.ranks[0].waits)
    step.waits[job.records[0].groups[static_cast<size_t>(wait.group)].name] += wait.exposed_s + wait.idle_s;
  const ParallelConfig& parallel = plan.config.parallel;
  if (parallel.pp > 1) {
    const DataShard shard = DataShard::of(train, parallel.dp * parallel.fsdp, 0);
    const auto idle = static_cast<double>(parallel.pp - 1);
    step.ideal_bubble = idle / (static_cast<double>(parallel.chunks * shard.micros(train.grad_accum)) + idle);
  }
  return step;
}

RunLengthPlan run_length(const Plan& plan, const Hardware& hardware) {
  const ingot::RunPlan run(plan.config);
  const auto ranks = static_cast<double>(plan.config.parallel.ranks());
  RunLengthPlan length;
  if (run.length().unit == RunUnit::kTime) {
    length.hours = plan.config.train.max_time_s / 3600;
    length.steps = static_cast<int64_t>(plan.config.train.max_time_s / plan.step.step_s);
    length.tokens = static_cast<int64_t>(static_cast<double>(length.steps) * plan.step.tokens);
  } else {
    length.steps = run.steps();
    length.tokens = run.ramp().tokens_before(run.steps());
    length.hours = static_cast<double>(length.tokens) / plan.step.tokens * plan.step.step_s / 3600;
  }
  length.kwh = hardware.device.power_w * 1e-3 * ranks * length.hours;
  length.cost = hardware.device.price_per_hour * ranks * length.hours;
  return length;
}

// On this machine, what the stages are cut by, as the ranks will measure it: on the device if there is one.
std::vector<double> unit_costs_of(const RunConfig& config, const PlanTarget& target, const Sharing& sharing) {
  if (!target.is_machine || config.parallel.pp == 1 || config.parallel.counts_costs) return {};
  set_num_threads(sharing.threads);
  const DataShard shard = DataShard::of(config.train, config.parallel.dp * config.parallel.fsdp, 0);
  const bool is_on_device = config.train.device == Device::kCuda && !no_cuda_reason();
  Stream stream = make_stream(is_on_device ? Device::kCuda : Device::kCpu);
  return measure_unit_costs(config, config.model.resolved(), shard.batch_size,
                            static_cast<int>(config.parallel.tp), stream);
}

// The costs of the operations of every class of ranks.
std::vector<std::unique_ptr<OpCosts>> costs_of(const RunConfig& config, const PlanTarget& target,
                                               const JobRecord& job, const Sharing& sharing,
                                               const std::vector<double>& unit_costs) {
  std::vector<std::unique_ptr<OpCosts>> costs;
  for (const int rank : job.ranks) {
    if (target.is_machine)
      costs.push_back(std::make_unique<MeasuredCosts>(
          machine_costs(config, job.shape, rank, sharing, unit_costs, target.cache, target.on_measuring)));
    else
      costs.push_back(std::make_unique<RooflineCosts>(target.hardware.device, config.precision.allows_tf32));
  }
  return costs;
}

}  // namespace

RunConfig for_target(const RunConfig& given, const PlanTarget& target) {
  RunConfig config = given;
  if (config.model.vocab == 0) config.model.vocab = planned_vocab(config.data);
  // A refusal by the device alone is no error here, so the configuration is validated as a run on the CPU.
  RunConfig on_cpu = config;
  on_cpu.train.device = Device::kCpu;
  on_cpu.train.has_graph = false;
  RecomputeConfig& activations = on_cpu.activations;
  if (given.train.device == Device::kCuda && activations.budget_bytes == 0 &&
      activations.policy == RecomputePolicy::kAuto)
    activations.policy = RecomputePolicy::kNone;  // as if everything fitted
  on_cpu.validate();
  if (target.is_machine) return on_cpu;
  config.train.device = Device::kCuda;
  return config;
}

std::string memory_shortage(const RunConfig& given, const PlanTarget& target) {
  Plan plan;
  plan.config = for_target(given, target);
  plan_memory_of_ranks(target, plan);
  return plan.unfit;
}

Plan make_plan(const RunConfig& given, const PlanTarget& target, const std::vector<int>& timelines_of) {
  Plan plan;
  plan.config = for_target(given, target);
  const RunConfig& config = plan.config;
  try {
    config.validate();
  } catch (const Error& error) {  // on a device only
    plan.refused = error.what();
  }
  check_layout(config, static_cast<int>(config.parallel.ranks()));
  if (!target.is_machine && plan.refused.empty()) {  // as `ingot train` does on the device
    MemoryLimits limits;
    limits.device = {.bytes = target.memory_bytes, .source = target.memory_source};
    const Mesh mesh = Mesh::planned(mesh_shape(config.parallel), 0);
    plan.config.activations = with_activation_budget(config, mesh, limits);
    plan.refused = lacked_format(config, target.hardware.name, capability_of(target.hardware.device));
  }
  plan.layout = config.parallel.to_string();
  const ModelConfig model = config.model.resolved();
  plan.parameters = model.parameters();
  plan.flops_per_token = model.flops_per_token();
  plan.model = model_parts(model);
  if (config.parallel.ranks() > 1 && config.parallel.ranks() <= kMaxCoveredRanks) check_coverage(config);
  plan_memory_of_ranks(target, plan);

  const int ranks = static_cast<int>(config.parallel.ranks());
  const Sharing sharing{.threads = std::max(1, target.threads / ranks),
                        .ranks = std::min(ranks, kMaxProcesses)};
  const std::vector<double> unit_costs = unit_costs_of(config, target, sharing);
  const JobRecord job = record_job(config, unit_costs);
  const std::vector<std::unique_ptr<OpCosts>> costs = costs_of(config, target, job, sharing, unit_costs);
  plan.programs = make_programs(
      job, [&](int rank_class) -> const OpCosts& { return *costs[static_cast<size_t>(rank_class)]; });
  Hardware hardware = target.hardware;
  for (double& launch_s : hardware.collectives.launch_s)
    launch_s = std::max(launch_s, config.parallel.delay_s);
  plan.schedule = simulate_schedule(plan.programs, hardware, {.timeline_ranks = timelines_of});
  plan.step = summarise(plan, job, *costs[0]);
  plan.run = run_length(plan, target.hardware);
  plan.tokens_per_s = plan.step.tokens / plan.step.step_s;
  const double peak =
      product_peak(target.hardware.device, config.precision.compute, config.precision.allows_tf32);
  plan.mfu = plan.flops_per_token * plan.tokens_per_s /
             (peak * (target.is_machine ? 1.0 : static_cast<double>(ranks)));
  return plan;
}

}  // namespace ingot
