#include "ingot/memory/memory_check.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "ingot/config/config_keys.h"
#include "ingot/config/data_shard.h"
#include "ingot/console/console.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr size_t kSuggestions = 3;
constexpr size_t kLargestItems = 5;

// ---- the memory of all ranks together ----

// The machine or device that is filled most.
struct Fit {
  double needed = 0, available = 0;
  bool is_device = false;
  int64_t ranks = 1;  // ranks that share it
  bool fits() const { return needed <= available; }
};

// Knows which ranks share a machine's memory and which share a device's; the same on all ranks.
class Neighbours {
 public:
  Neighbours(Communicator& all, const MemoryLimits& limits) : all_(all) {
    const auto ranks = static_cast<size_t>(all.size());
    const uint64_t machine = std::hash<std::string>{}(limits.machine);
    first_ = {first_with(machine, ranks),
              first_with(std::hash<std::string>{}(limits.machine + " " + limits.device_name), ranks)};
    for (size_t kind : {0, 1}) {
      const uint64_t bytes = (kind == 0 ? limits.host : limits.device).bytes;
      std::vector<double>& least = available_[kind];
      least.assign(ranks, -std::numeric_limits<double>::infinity());
      least[own_first(kind)] = -static_cast<double>(bytes);
      all.max(least);
      for (double& value : least) value = -value;
    }
  }

  Fit fit(const std::optional<MemoryPlan>& plan) {
    Fit worst;
    double worst_share = -1;
    for (size_t kind : {0, 1}) {
      const double own = !plan       ? std::numeric_limits<double>::infinity()
                         : kind == 0 ? static_cast<double>(plan->host_bytes())
                                     : static_cast<double>(plan->device_bytes());
      std::vector<double> needed(first_[kind].size(), 0.0);
      needed[own_first(kind)] = own;
      all_.sum(needed);
      for (size_t r = 0; r < needed.size(); ++r) {
        if (needed[r] == 0) continue;
        const double share = needed[r] / std::max(1.0, available_[kind][r]);
        if (share <= worst_share) continue;
        worst_share = share;
        worst = {needed[r], available_[kind][r], kind == 1, std::ranges::count(first_[kind], r)};
      }
    }
    return worst;
  }

 private:
  size_t own_first(size_t kind) const { return first_[kind][static_cast<size_t>(all_.rank())]; }

  // Returns for each rank the first rank with the same key.
  std::vector<size_t> first_with(uint64_t key, size_t ranks) {
    std::vector<double> keys(ranks, 0.0);
    keys[static_cast<size_t>(all_.rank())] = static_cast<double>(key >> 11);  // 53 bits are exact in a double
    all_.sum(keys);
    std::vector<size_t> first;
    for (const double other : keys)
      first.push_back(static_cast<size_t>(std::ranges::find(keys, other) - keys.begin()));
    return first;
  }

  Communicator& all_;
  std::array<std::vector<size_t>, 2> first_;      // [is_device][rank]
  std::array<std::vector<double>, 2> available_;  // [is_device][first rank]
};

// ---- changes of the configuration ----

struct Setting {
  std::string key;
  ConfigValue value;
};
// One setting of a part of the configuration; each part has a list of them, from the smallest change on.
struct Level {
  double cost = 0;  // estimated cost of the change in results and time
  std::vector<Setting> settings;
};

std::vector<Level> policy_levels(const RunConfig& config) {
  using enum RecomputePolicy;
  const auto policy = config.activations.policy;
  std::vector<Level> levels{{}};
  const auto add = [&](double cost, const char* name) {
    levels.push_back({cost, {{"activations.policy", std::string(name)}}});
  };
  if (policy == kNone) add(1, "selective");
  if (policy == kNone || policy == kSelective || policy == kEveryK) add(3, "block");
  if (policy != kSqrt && policy != kAuto) add(4, "sqrt");
  return levels;
}

int64_t smallest_factor(int64_t n) {
  for (int64_t factor = 2; factor * factor <= n; ++factor)
    if (n % factor == 0) return factor;
  return n;
}

// Levels with smaller micro-batches, down to one sequence where the ranks can share it, but more of them per
// step: the step is the same.
std::vector<Level> batch_levels(const RunConfig& config) {
  std::vector<Level> levels{{}};
  if (!config.train.batch_ramp.empty()) return levels;
  RunConfig tried = config;
  int64_t &batch = tried.train.batch_size, &micros = tried.train.grad_accum;
  for (double cost = 1.5; batch > 1; cost += 0.2) {
    const int64_t factor = smallest_factor(batch);
    batch /= factor;
    micros *= factor;
    try {
      static_cast<void>(DataShard::of(tried.train, config.parallel.dp * config.parallel.fsdp, 0));
    } catch (const Error&) {  // the ranks cannot share it
      continue;
    }
    levels.push_back({cost, {{"train.batch_size", batch}, {"train.grad_accum", micros}}});
  }
  return levels;
}

std::vector<Level> precision_levels(const RunConfig& config) {
  std::vector<Level> levels{{}};
  const DType compute = config.precision.compute;
  if (compute != DType::f32 && compute != DType::bf16) return levels;
  const bool is_f32 = compute == DType::f32;
  const auto add = [&](double cost, const char* master) {
    Level level{cost, {{"precision.master", std::string(master)}}};
    if (is_f32) level.settings.insert(level.settings.begin(), {"precision.compute", std::string("bf16")});
    levels.push_back(std::move(level));
  };
  if (config.precision.master == Masters::kF32) add(is_f32 ? 7 : 5, "bf16_tail");
  if (config.precision.master != Masters::kNone) add(is_f32 ? 10 : 8, "bf16_stochastic");
  return levels;
}

std::vector<Level> optimizer_levels(const RunConfig& config) {
  std::vector<Level> levels{{}};
  if (config.optimizer.rule.kind.value_or("adamw") == "adamw")
    levels.push_back({6, {{"optimizer.kind", std::string("adamw8bit")}}});
  return levels;
}

std::string value_text(const ConfigValue& value) {
  if (const auto* n = std::get_if<int64_t>(&value)) return fmt::format("{}", *n);
  return std::get<std::string>(value);
}

struct Change {
  std::array<size_t, 4> at = {};  // the level of each part
  double cost = 0;
  std::vector<Setting> settings;
  Fit fit;

  std::string text() const {
    std::string text;
    for (const Setting& setting : settings)
      text += fmt::format("{}--set {}={}", text.empty() ? "" : " ", setting.key, value_text(setting.value));
    return fmt::format("{}: {}", text, format_bytes(fit.needed));
  }
  // Returns true if every part is changed at least as much as in `other`.
  bool includes(const Change& other) const {
    for (size_t part = 0; part < at.size(); ++part)
      if (at[part] < other.at[part]) return false;
    return true;
  }
};

// Searches for changes that fit. Every rank tries the same ones in the same order, as
// Neighbours::fit() requires.
class Search {
 public:
  Search(const RunConfig& config, const Mesh& mesh, Neighbours& neighbours)
      : config_(config),
        mesh_(mesh),
        neighbours_(neighbours),
        levels_{batch_levels(config), policy_levels(config), precision_levels(config),
                optimizer_levels(config)} {}

  // Returns the cheapest changes first; none of them includes another.
  std::vector<Change> run() {
    for (const Change& base : bases()) {
      if (found_.size() >= kSuggestions && base.cost >= found_[kSuggestions - 1].cost) break;
      find_batch(base.at);
    }
    std::vector<Change> kept;
    for (const Change& change : found_)
      if (std::ranges::none_of(kept, [&](const Change& k) { return change.includes(k); }))
        kept.push_back(change);
    kept.resize(std::min(kept.size(), kSuggestions));
    return kept;
  }

  // Returns the change with the least memory: every part changed as far as possible, with the policy that
  // needs the least.
  Change furthest() {
    std::array<size_t, 4> at{};
    for (size_t part = 0; part < at.size(); ++part) at[part] = levels_[part].size() - 1;
    Change least = tried(at);
    while (at[1]-- > 0) {
      Change other = tried(at);
      if (other.fit.needed < least.fit.needed) least = std::move(other);
    }
    return least;
  }

 private:
  // Returns every choice of the parts other than the batch, cheapest first.
  std::vector<Change> bases() const {
    std::vector<Change> all;
    for (size_t p = 0; p < levels_[1].size(); ++p)
      for (size_t m = 0; m < levels_[2].size(); ++m)
        for (size_t o = 0; o < levels_[3].size(); ++o) all.push_back(change({0, p, m, o}));
    std::ranges::stable_sort(all, {}, &Change::cost);
    return all;
  }

  Change change(const std::array<size_t, 4>& at) const {
    Change change{.at = at, .settings = {}, .fit = {}};
    for (size_t part = 0; part < at.size(); ++part) {
      const Level& level = levels_[part][at[part]];
      change.cost += level.cost;
      change.settings.insert(change.settings.end(), level.settings.begin(), level.settings.end());
    }
    return change;
  }

  Change tried(const std::array<size_t, 4>& at) {
    Change tried = change(at);
    std::optional<MemoryPlan> plan;
    try {
      RunConfig config = config_;
      for (const Setting& setting : tried.settings) find_config_key(setting.key)->set(config, setting.value);
      config.validate();
      plan = plan_memory(config, mesh_.shape, mesh_.world->rank());
    } catch (const Error&) {  // these settings exclude each other
    }
    tried.fit = neighbours_.fit(plan);
    return tried;
  }

  // Finds the largest batch that fits with the given levels of the other parts.
  void find_batch(std::array<size_t, 4> at) {
    size_t low = 0, high = levels_[0].size() - 1;
    at[0] = high;
    Change best = tried(at);
    if (!best.fit.fits()) return;
    while (low < high) {
      at[0] = (low + high) / 2;
      Change middle = tried(at);
      if (middle.fit.fits()) {
        high = at[0];
        best = std::move(middle);
      } else {
        low = at[0] + 1;
      }
    }
    found_.insert(std::ranges::upper_bound(found_, best.cost, {}, &Change::cost), std::move(best));
  }

  const RunConfig& config_;
  const Mesh& mesh_;
  Neighbours& neighbours_;
  std::array<std::vector<Level>, 4> levels_;  // batch, policy, precision, optimizer
  std::vector<Change> found_;                 // sorted by cost
};

std::string suggestions(const RunConfig& config, const Mesh& mesh, Neighbours& neighbours) {
  Search search(config, mesh, neighbours);
  const std::vector<Change> changes = search.run();
  if (changes.empty()) {
    const Change furthest = search.furthest();
    if (std::isinf(furthest.fit.needed)) return "Take a smaller model or more ranks.";
    return fmt::format(
        "No change of batch, activations, precision and optimizer fits; the least is\n  {}\nTake a smaller "
        "model, "
        "a shorter model.context or more ranks on other machines.",
        furthest.text());
  }
  std::string text = "What fits, the least change first:";
  for (const Change& change : changes) text += "\n  " + change.text();
  return text;
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (std::getline(in, id)) return id;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return host.data();
}

}  // namespace

MemoryLimits memory_limits(Device device) {
  MemoryLimits limits{.host = host_memory_limit(), .device = {}, .machine = boot_id(), .device_name = {}};
  if constexpr (kHasCuda) {
    if (device == Device::kCuda && !no_cuda_reason()) {
      limits.device = {.bytes = cuda::free_memory_bytes(), .source = "the device's free memory"};
      limits.device_name = fmt::format("device {}", cuda::current_device());
    }
  }
  return limits;
}

std::string check_memory(const RunConfig& config, const Mesh& mesh, const MemoryLimits& limits) {
  const MemoryPlan plan = plan_memory(config, mesh.shape, mesh.world->rank());
  Neighbours neighbours(*mesh.world, limits);
  const Fit fit = neighbours.fit(plan);
  if (fit.fits()) return "";
  const std::string of_ranks = fit.ranks > 1 ? fmt::format(" ({} ranks together)", fit.ranks) : "";
  const std::string text =
      fmt::format("the run takes {} of {} memory{}, and {} are available by {}; the largest: {}",
                  format_bytes(fit.needed), fit.is_device ? "the device's" : "the host's", of_ranks,
                  format_bytes(fit.available), (fit.is_device ? limits.device : limits.host).source,
                  plan.largest(kLargestItems));
  if (config.train.is_overcommitted) return text;
  fail(ErrorKind::kMemory, "{}\n{}\ntrain.overcommit = true starts it as it is.", text,
       suggestions(config, mesh, neighbours));
}

std::string no_room_for_copy(const RunConfig& config, const Mesh& mesh, const MemoryLimits& limits) {
  if (!config.checkpoint.copies_state()) return "";
  Neighbours neighbours(*mesh.world, limits);
  const Fit fit = neighbours.fit(plan_memory(config, mesh.shape, mesh.world->rank()));
  if (fit.fits()) return "";
  return fmt::format(
      "training waits while a checkpoint is saved: with a copy of the state the run would take {}, and {} "
      "are "
      "available by {}",
      format_bytes(fit.needed), format_bytes(fit.available),
      (fit.is_device ? limits.device : limits.host).source);
}

namespace {

void require_within(const MemoryLimit& limit, uint64_t bytes, std::string_view what, const char* cure) {
  if (bytes <= limit.bytes) return;
  fail(ErrorKind::kMemory, "{} take {}, and {} are available by {}; {}", what,
       format_bytes(static_cast<double>(bytes)), format_bytes(static_cast<double>(limit.bytes)), limit.source,
       cure);
}

}  // namespace

void require_memory(uint64_t bytes, std::string_view what, const MemoryFiles& files) {
  require_within(host_memory_limit(files, true), bytes, what, "use a smaller model or a larger machine");
}

void require_device_memory(uint64_t bytes, std::string_view what) {
  require_within(memory_limits(Device::kCuda).device, bytes, what, "use --device cpu, or a smaller model");
}

}  // namespace ingot
