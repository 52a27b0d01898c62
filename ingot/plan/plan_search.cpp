#include "ingot/plan/plan_search.h"

#include <algorithm>
#include <array>

#include "ingot/core/error.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/plan/dry_step.h"

namespace ingot {
namespace {

struct Candidate {
  RunConfig config;
  std::string settings;
  uint64_t peak_bytes = 0;
  double estimate_s = 0;
};

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

const char* policy_name(RecomputePolicy policy) {
  switch (policy) {
    case RecomputePolicy::kSelective:
      return "selective";
    case RecomputePolicy::kBlock:
      return "block";
    default:
      return "none";
  }
}

// Sequences per micro-batch that leave those of a step as they are: powers of two for every rank.
std::vector<int64_t> batch_sizes(const RunConfig& config, int64_t data_ranks) {
  const int64_t sequences = config.train.batch_size * config.train.grad_accum;
  std::vector<int64_t> sizes;
  for (int64_t own = 1; own * data_ranks <= sequences; own *= 2)
    if (sequences % (own * data_ranks) == 0) sizes.push_back(own);
  return sizes;
}

std::vector<Candidate> candidates(const RunConfig& config, int64_t ranks, int64_t devices_per_node) {
  using enum RecomputePolicy;
  std::vector<Candidate> all;
  for (const int64_t tp : divisors(ranks)) {
    if (tp > devices_per_node) continue;
    for (const int64_t pp : divisors(ranks / tp)) {
      if (pp > config.model.layers) continue;
      for (const int64_t fsdp : divisors(ranks / tp / pp)) {
        const int64_t dp = ranks / tp / pp / fsdp;
        for (const int64_t own : batch_sizes(config, dp * fsdp))
          for (const RecomputePolicy policy : {kNone, kSelective, kBlock}) {
            Candidate c{.config = config, .settings = {}};
            ParallelConfig& parallel = c.config.parallel;
            parallel.tp = tp;
            parallel.pp = pp;
            parallel.fsdp = fsdp;
            parallel.dp = dp;
            if (parallel.schedule != PipelineKind::kInterleaved) parallel.chunks = 1;
            const int64_t sequences = config.train.batch_size * config.train.grad_accum;
            c.config.train.batch_size = own;
            c.config.train.grad_accum = sequences / own;
            c.config.train.batch_ramp.clear();
            c.config.activations.policy = policy;
            c.settings = fmt::format(
                "parallel.dp={} parallel.fsdp={} parallel.tp={} parallel.pp={} train.batch_size={} "
                "train.grad_accum={} activations.policy={}",
                dp, fsdp, tp, pp, own, sequences / own, policy_name(policy));
            all.push_back(std::move(c));
          }
      }
    }
  }
  return all;
}

// The largest memory of the first and the last stage; nullopt if the trainer refuses the combination.
std::optional<uint64_t> peak_of(const RunConfig& config) {
  try {
    const MeshShape shape = mesh_shape(config.parallel);
    check_layout(config, shape.size());
    uint64_t peak = 0;
    for (const int rank : {0, shape.size() - 1}) {
      const MemoryPlan plan = plan_memory(config, shape, rank);
      peak = std::max(peak, config.train.device == Device::kCuda ? plan.device_bytes() : plan.host_bytes());
    }
    return peak;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// An estimate of a step's time without communication, from one with few micro-batches: that of the first or
// the last stage, whichever is longer.
double estimate(const RunConfig& given, const OpCosts& costs) {
  RunConfig config = given;
  const ParallelConfig& parallel = config.parallel;
  const int64_t least = parallel.pp * parallel.dp * parallel.fsdp;
  if (config.train.grad_accum > least && config.train.grad_accum % least == 0)
    config.train.grad_accum = least;
  const double micros =
      static_cast<double>(given.train.grad_accum) / static_cast<double>(config.train.grad_accum);
  // The passes of a rank, and those that it idles while others fill and drain the pipeline.
  const double own =
      static_cast<double>(given.train.grad_accum) / static_cast<double>(parallel.dp * parallel.fsdp);
  const double idle = static_cast<double>(parallel.pp - 1) / static_cast<double>(parallel.chunks);
  const double passes = micros * (own + idle) / own;
  const MeshShape shape = mesh_shape(parallel);
  double busy_s = 0;
  for (const int rank : {0, shape.size() - 1}) {
    double own_s = 0;
    for (const auto& [part, s] : time_by_part(record_step(config, shape, rank), costs))
      own_s += part.starts_with("forward") || part.starts_with("backward") ? s * passes : s;
    busy_s = std::max(busy_s, own_s);
  }
  return busy_s;
}

std::string limit_of(const Plan& plan) {
  const double comm = plan.step.exposed_comm_s / plan.step.step_s, bubble = plan.step.bubble;
  if (bubble > 0.1 && bubble > comm) return fmt::format("bubble {:.0f} %", 100 * bubble);
  if (comm > 0.1) {
    const auto most =
        std::ranges::max_element(plan.step.waits, {}, [](const auto& wait) { return wait.second; });
    return fmt::format("waits {:.0f} % for {}", 100 * comm,
                       most == plan.step.waits.end() ? "ranks" : most->first);
  }
  return "products";
}

}  // namespace

SearchResult search_plans(const RunConfig& given, const PlanTarget& target, int64_t ranks, size_t keep,
                          size_t simulate, const std::function<void(size_t, size_t)>& on_progress) {
  const RunConfig config = for_target(given, target);
  SearchResult result;
  std::vector<Candidate> fitting;
  std::vector<Candidate> all = candidates(config, ranks, target.hardware.node.devices);
  const RooflineCosts costs(target.hardware.device, config.precision.allows_tf32);
  for (size_t i = 0; i < all.size(); ++i) {
    Candidate& c = all[i];
    std::optional<uint64_t> peak = peak_of(c.config);
    if (!peak) continue;
    ++result.valid;
    const uint64_t share = target.memory_bytes / (target.is_machine ? static_cast<uint64_t>(ranks) : 1);
    if (*peak > share && c.config.checkpoint.copies_state()) {  // as `ingot train` does then
      c.config.checkpoint.has_room = false;
      peak = peak_of(c.config);
    }
    c.peak_bytes = *peak;
    if (c.peak_bytes > share) continue;
    ++result.fitting;
    c.estimate_s = estimate(c.config, costs);
    fitting.push_back(std::move(c));
    if (on_progress) on_progress(i, all.size());
  }
  std::ranges::stable_sort(fitting, {}, &Candidate::estimate_s);
  fitting.resize(std::min(fitting.size(), simulate));
  for (const Candidate& c : fitting) {
    RunConfig tried = c.config;
    tried.train.device = Device::kCpu;
    const Plan plan = make_plan(tried, target);
    ++result.simulated;
    result.best.push_back({.settings = c.settings,
                           .step_s = plan.step.step_s,
                           .tokens_per_s = plan.tokens_per_s,
                           .mfu = plan.mfu,
                           .exposed_comm_s = plan.step.exposed_comm_s,
                           .bubble = plan.step.bubble,
                           .peak_bytes = c.peak_bytes,
                           .reason = limit_of(plan)});
    if (on_progress) on_progress(static_cast<size_t>(result.simulated), fitting.size());
  }
  std::ranges::stable_sort(result.best, {}, &FoundPlan::step_s);
  result.best.resize(std::min(result.best.size(), keep));
  return result;
}

}  // namespace ingot
