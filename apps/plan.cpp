// ingot plan: what a run will take before it starts.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/build_info.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/nearest.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/core/process/thread_limit.h"
#include "ingot/memory/memory_limit.h"
#include "ingot/plan/machine_costs.h"
#include "ingot/plan/plan_search.h"
#include "ingot/plan/plan_text.h"
#include "ingot/run/peak.h"
#include "ingot/run/start_model.h"

namespace ingot {
namespace {

constexpr int kMaxRanks = 65536;

struct PlanArguments {
  std::string source;
  std::vector<std::string> data, overrides;
  int64_t ranks = 0;
  std::string hardware = "this";
  bool searches = false;
  bool is_json = false;
  std::string out, trace;
  int trace_rank = 0;
};

// This machine: ranks exchange messages through its memory. The rates of links are those of Open MPI between
// two processes of a machine with 2 cores; a plan for many ranks on one machine is of little use.
PlanTarget this_machine(const RunConfig& config) {
  const MachineInfo info = machine_info();
  const MemoryLimit limit = host_memory_limit();
  PlanTarget target;
  target.is_machine = true;
  target.memory_bytes = limit.bytes;
  target.memory_source = limit.source;
  if (!plan_cache_folder().empty()) target.cache = plan_cache_folder() / program_build().commit.substr(0, 12);
  const int64_t own = config.train.threads;  // threads of each rank
  target.threads = own > 0 ? static_cast<int>(own * config.parallel.ranks()) : thread_use().chosen.threads;
  Hardware& hardware = target.hardware;
  hardware.name = fmt::format("this machine ({}, {} threads by {})", info.cpu, target.threads,
                              own > 0 ? "train.threads" : thread_use().chosen.source);
  hardware.node.devices = kMaxRanks;
  hardware.node.link_bytes_per_s = 2e9;
  hardware.node.link_fraction = 1;
  hardware.node.ring_latency_s = hardware.node.tree_latency_s = {20e-6, 20e-6, 20e-6};
  hardware.network.nic_bytes_per_s = hardware.network.nic_fraction = 1;  // it has no other nodes
  target.on_measuring = [](const std::string& what) {
    fmt::print(stderr, "measuring {}; the result is kept for the next plan\n", what);
  };
  fmt::print(stderr, "measuring the machine's matrix products for half a second\n");
  ProductPeak peak(config.precision.compute);
  peak.measure(0.5);
  hardware.device.f32_flops = hardware.device.tf32_flops = hardware.device.bf16_flops = peak.gflops() * 1e9;
  return target;
}

std::string hardware_list() {
  std::vector<std::string> names;
  for (const HardwareFile& file : hardware_files()) names.emplace_back(file.name);
  return list_names(names);
}

PlanTarget target_of(const PlanArguments& arguments, const RunConfig& config) {
  if (arguments.hardware == "this") return this_machine(config);
  PlanTarget target;
  target.hardware = find_hardware(arguments.hardware);
  target.memory_bytes = static_cast<uint64_t>(target.hardware.device.hbm_bytes);
  target.memory_source = target.hardware.name;
  return target;
}

// --ranks without a layout that makes them: the replicas are what is left.
void take_ranks(RunConfig& config, int64_t ranks) {
  ParallelConfig& parallel = config.parallel;
  if (ranks == 0 || parallel.ranks() == ranks) return;
  const int64_t others = parallel.fsdp * parallel.tp * parallel.pp;
  if (ranks % others != 0)
    fail(ErrorKind::kUsage, "--ranks {} is no multiple of the {} ranks of {}; the nearest is {}", ranks,
         others, parallel.to_string(), std::max<int64_t>(1, (ranks + others / 2) / others) * others);
  parallel.dp = ranks / others;
}

// The ranks whose timelines are drawn: the first of every stage, and the one that is traced.
std::vector<int> drawn_ranks(const PlanArguments& arguments, const RunConfig& config) {
  std::vector<int> ranks;
  const int all = static_cast<int>(config.parallel.ranks());
  if (!arguments.out.empty())
    for (int stage = 0; stage < config.parallel.pp; ++stage)
      ranks.push_back(stage * all / static_cast<int>(config.parallel.pp));
  if (arguments.trace.empty()) return ranks;
  if (arguments.trace_rank >= all)
    fail(ErrorKind::kUsage, "--trace-rank {}: the job has ranks 0 to {}", arguments.trace_rank, all - 1);
  if (std::ranges::find(ranks, arguments.trace_rank) == ranks.end()) ranks.push_back(arguments.trace_rank);
  return ranks;
}

void print_search(const PlanArguments& arguments, const RunConfig& config, const PlanTarget& target) {
  constexpr size_t kKept = 10, kSimulated = 40;
  const int64_t ranks = arguments.ranks > 0 ? arguments.ranks : config.parallel.ranks();
  const SearchResult result = search_plans(config, target, ranks, kKept, kSimulated, {});
  if (arguments.is_json) {
    nlohmann::ordered_json best = nlohmann::ordered_json::array();
    for (const FoundPlan& found : result.best)
      best.push_back({{"set", found.settings},
                      {"step_s", found.step_s},
                      {"tokens_per_s", found.tokens_per_s},
                      {"mfu", found.mfu},
                      {"exposed_comm_s", found.exposed_comm_s},
                      {"bubble", found.bubble},
                      {"peak_bytes", found.peak_bytes},
                      {"limit", found.reason}});
    const nlohmann::ordered_json json{{"valid", result.valid},
                                      {"fitting", result.fitting},
                                      {"simulated", result.simulated},
                                      {"best", best},
                                      {"hardware", target.hardware.name}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{} rank{} of {}: {} combinations are valid, {} fit, {} were simulated\n", ranks,
               ranks == 1 ? "" : "s", target.hardware.name, result.valid, result.fitting, result.simulated);
    fmt::print("{:>12} {:>7} {:>9}  {:<22} {}\n", "tokens/s", "MFU", "memory", "limit", "--set");
    for (const FoundPlan& found : result.best)
      fmt::print("{:>12} {:>6.1f}% {:>9}  {:<22} {}\n", format_count(found.tokens_per_s), 100 * found.mfu,
                 format_bytes(static_cast<double>(found.peak_bytes)), found.reason, found.settings);
  }
  if (!result.best.empty()) return;
  // The search leaves precision, optimizer and the tokens of a step as they are; the comparison of one layout
  // does not.
  RunConfig one = config;
  take_ranks(one, ranks);
  const std::string shortage = memory_shortage(one, target);
  fail(ErrorKind::kMemory, "no layout of {} ranks fits into {} of {}, with this precision and optimizer\n{}",
       ranks, format_bytes(static_cast<double>(target.memory_bytes)), target.memory_source,
       shortage.find("--set") != std::string::npos
           ? fmt::format("with {}, {}", one.parallel.to_string(), shortage)
           : "take more ranks or a smaller model");
}

void plan_run(const PlanArguments& arguments) {
  ConfigBuilder builder;
  builder.add_source(arguments.source);
  if (!arguments.data.empty()) builder.add_texts("data.train", arguments.data, "--data");
  for (const std::string& assignment : arguments.overrides) builder.add_override(assignment);
  complete_from_start(builder);
  RunConfig config = builder.build();
  if (!arguments.is_json) print_notes(builder.notes());
  if (!arguments.searches) take_ranks(config, arguments.ranks);
  const PlanTarget target = target_of(arguments, config);
  if (arguments.searches) return print_search(arguments, config, target);
  const Plan plan = make_plan(config, target, drawn_ranks(arguments, config));
  fmt::print("{}{}", arguments.is_json ? plan_json(plan, target) : plan_text(plan, target),
             arguments.is_json ? "\n" : "");
  const auto write = [&](const std::string& file, const std::string& text) {
    if (file.empty()) return;
    write_file(file, text);
    if (!arguments.is_json) fmt::print("written: {}\n", file);
  };
  write(arguments.out, plan_picture(plan, target));
  write(arguments.trace, plan_trace(plan));
  if (!plan.fits)
    fail(ErrorKind::kMemory, "the run does not fit into {} of {}",
         format_bytes(static_cast<double>(target.memory_bytes)), target.memory_source);
}

}  // namespace

void add_plan_command(Command& app) {
  auto arguments = std::make_shared<PlanArguments>();
  Command* command = app.add_subcommand("plan", "Memory, time and cost of a run, before it starts");
  command->add_option("config", arguments->source, "A preset, or a TOML file's path")
      ->type_name("PRESET|FILE.toml")
      ->required();
  command->add_option("--data", arguments->data, "Text to train on, as for `ingot train`")
      ->type_name("PATH ...");
  command->add_option("--set", arguments->overrides, "Override a key; may be repeated")
      ->type_name("key=value")
      ->repeated();
  command
      ->add_option("--ranks", arguments->ranks,
                   "Number of ranks; more replicas make up for the layout's others")
      ->count(1, kMaxRanks);
  command
      ->add_option("--hardware", arguments->hardware,
                   "What to plan for: \"this\" machine, which is measured once, or " + hardware_list() +
                       ", or a description")
      ->type_name("NAME|FILE.toml")
      ->capture_default_str();
  command->add_flag("--search", arguments->searches,
                    "Rank the layouts, recompute policies and micro-batches that fit");
  command->add_flag("--json", arguments->is_json, "Print one JSON object");
  command->add_option("--out", arguments->out, "Write a picture of memory and of a step")
      ->type_name("FILE.svg");
  command->add_option("--trace", arguments->trace, "Write a Chrome trace of a step")->type_name("FILE.json");
  command->add_option("--trace-rank", arguments->trace_rank, "The rank to trace")
      ->in_range(0, 65535)
      ->capture_default_str();
  command->callback([arguments] { plan_run(*arguments); });
}

}  // namespace ingot
