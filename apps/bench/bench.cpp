// ingot bench: the speed of single ops and of a whole training step on this machine.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench/bench_checkpointing.h"
#include "apps/bench/bench_head.h"
#include "apps/bench/bench_ops.h"
#include "apps/bench/bench_parallel.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/ranks.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/device_support.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/profile/bench_step.h"
#include "ingot/run/start_model.h"

namespace ingot {
namespace {

struct BenchArguments {
  std::string source;
  std::vector<std::string> overrides;
  int64_t steps = 20;
  bool leaves_out_products = false;
  std::string trace;  // file for a Chrome trace; empty: none
  bool is_json = false;
};

void print_json(const StepBench& b) {
  nlohmann::ordered_json json = {{"preset", b.preset},
                                 {"dtype", b.dtype},
                                 {"engine", b.engine},
                                 {"steps", b.steps},
                                 {"batch_size", b.batch_size},
                                 {"context", b.context},
                                 {"parameters", b.parameters},
                                 {"startup_s", b.start_s},
                                 {"step_ms", b.step_ms},
                                 {"tokens_per_s", b.tokens_per_s},
                                 {"matmul_in_step_ms", b.matmul_ms},
                                 {"evaluation_ms", b.evaluation_ms},
                                 {"evaluation_blocks_ms", b.evaluation_blocks_ms},
                                 {"forward_blocks_ms", b.forward_blocks_ms},
                                 {"gflops", b.gflops},
                                 {"data_sheet_gflops", b.data_sheet_gflops},
                                 {"data_sheet_mfu", b.data_sheet_mfu},
                                 {"loss_first", b.loss_first},
                                 {"loss_last", b.loss_last},
                                 {"peak_rss_bytes", b.peak_rss_bytes}};
  if (b.peak_gflops > 0) {
    json["matmul_ms"] = b.products_alone_ms;
    json["matmul_share"] = b.products_alone_ms / b.step_ms;
    json["peak_gflops"] = b.peak_gflops;
    json["mfu"] = b.mfu ? nlohmann::ordered_json(*b.mfu) : nullptr;
  }
  if (b.device_bytes > 0) json["device_bytes"] = b.device_bytes;
  if (b.launches.kernels > 0)
    json["launches"] = {{"kernels", b.launches.kernels},
                        {"libraries", b.launches.libraries},
                        {"copies", b.launches.copies},
                        {"graphs", b.launches.graphs}};
  for (const auto& [name, ms] : b.phases_ms) json["phases"][name] = ms;
  for (const auto& [name, bytes] : b.arena_bytes) json["arena_bytes"][name] = bytes;
  const KernelReport& kernels = b.kernels;
  if (!kernels.attention_forward.empty())
    json["kernels"] = {{"attention_forward", kernels.attention_forward},
                       {"attention_backward", kernels.attention_backward},
                       {"met_in_graphs", kernels.met_in_graphs}};
  for (const auto& [kind, n] : kernels.products)
    json["kernels"]["products"][kind] = {{"taken", n.taken}, {"refused", n.refused}, {"slower", n.slower}};
  fmt::print("{}\n", json.dump());
}

void print_text(const StepBench& b) {
  fmt::print("{} {} on {}: {} parameters, batch {} x {}, {} steps\n", b.preset, b.dtype, b.engine,
             format_count(static_cast<double>(b.parameters)), b.batch_size, b.context, b.steps);
  fmt::print("{:.2f} ms per step | {} tok/s | {:.0f} GFLOP/s | start {:.2f} s | peak memory {}\n", b.step_ms,
             format_count(b.tokens_per_s), b.gflops, b.start_s,
             format_bytes(static_cast<double>(b.peak_rss_bytes)));
  if (b.peak_gflops > 0)
    fmt::print("mfu {} of {:.0f} GFLOP/s\n", b.mfu ? fmt::format("{:.1f}%", 100 * *b.mfu) : "n/a",
               b.peak_gflops);
  if (b.data_sheet_gflops > 0)
    fmt::print("mfu {:.1f}% of the data sheet's {:.0f} GFLOP/s\n", 100 * b.data_sheet_mfu,
               b.data_sheet_gflops);
  if (b.peak_gflops > 0)
    fmt::print("products: {:.2f} ms in the step, {:.2f} ms alone, {:.0f}% of the step\n", b.matmul_ms,
               b.products_alone_ms, 100 * b.products_alone_ms / b.step_ms);
  if (b.evaluation_blocks_ms > 0)
    fmt::print(
        "evaluation: {:.2f} ms per batch, head {:.2f} ms, blocks {:.2f} ms: {:.0f}% of the rate of forward "
        "in a step\n",
        b.evaluation_ms, b.evaluation_ms - b.evaluation_blocks_ms, b.evaluation_blocks_ms,
        100 * b.forward_blocks_ms / b.evaluation_blocks_ms);
  if (b.device_bytes > 0)
    fmt::print("memory of the device: {}\n", format_bytes(static_cast<double>(b.device_bytes)));
  if (b.launches.kernels > 0)
    fmt::print(
        "launches per step: {:.1f} kernels, {:.1f} operations of libraries, {:.1f} copies, {:.1f} graphs\n",
        b.launches.kernels, b.launches.libraries, b.launches.copies, b.launches.graphs);
  if (!b.kernels.attention_forward.empty())
    fmt::print("attention: {}; backward: {}\n", b.kernels.attention_forward, b.kernels.attention_backward);
  if (const std::string refused = b.kernels.refused(); !refused.empty())
    fmt::print("products that cuBLASLt refuses: {}\n", refused);
  for (const auto& [name, ms] : b.phases_ms)
    fmt::print("  {:<24} {:9.3f} ms {:5.1f}%\n", name, ms, 100 * ms / b.step_ms);
  for (const auto& [name, bytes] : b.arena_bytes)
    fmt::print("  {:<24} {}\n", name, format_bytes(static_cast<double>(bytes)));
}

RunConfig configure(const BenchArguments& arguments) {
  ConfigBuilder builder;
  builder.add_source(arguments.source);
  for (const std::string& assignment : arguments.overrides) builder.add_override(assignment);
  complete_from_start(builder);
  prepare_pipeline(builder.config());
  require_device(builder.config());
  const RunConfig& config = builder.build();
  print_notes(builder.notes());
  return config;
}

void bench_step_command(const BenchArguments& arguments) {
  const StepBench result =
      bench_step(configure(arguments), {.steps = arguments.steps,
                                        .wants_trace = !arguments.trace.empty(),
                                        .times_products = !arguments.leaves_out_products});
  if (!arguments.trace.empty()) write_file(arguments.trace, result.trace);
  arguments.is_json ? print_json(result) : print_text(result);
}

// A subcommand that times steps of a preset.
Command* add_preset_command(Command& parent, const char* name, const char* doc, BenchArguments& arguments) {
  Command* command = parent.add_subcommand(name, doc);
  command->add_option("config", arguments.source, "A preset, or a TOML file's path")
      ->type_name("PRESET|FILE.toml")
      ->required();
  command->add_option("--set", arguments.overrides, "Override a key; may be repeated")
      ->type_name("key=value")
      ->repeated();
  command->add_option("--steps", arguments.steps, "Steps to time")->count(1)->capture_default_str();
  command->add_flag("--json", arguments.is_json, "One JSON object");
  return command;
}

void add_head_bench(Command& command) {
  auto a = std::make_shared<HeadBenchArguments>();
  HeadBenchOptions& options = a->options;
  Command* head = command.add_subcommand("head", "The loss head's kinds: time and working memory");
  head->add_option("--tokens", options.tokens, "Of the micro-batch")->count(1)->capture_default_str();
  head->add_option("--vocab", options.vocab, "Rows of the head's weights")->count(1)->capture_default_str();
  head->add_option("--width", options.width, "Columns of the head's weights")
      ->count(1)
      ->capture_default_str();
  head->add_option("--precision", a->precision, "f32, bf16 or fp8")->capture_default_str();
  head->add_option("--device", a->device, "cpu or cuda")->capture_default_str();
  head->add_option("--repetitions", options.repetitions, "Rounds to time")->count(1)->capture_default_str();
  head->add_flag("--json", a->is_json, "One JSON object");
  head->callback([a] { print_head_bench(*a); });
}

}  // namespace

void add_bench_command(Command& app) {
  auto arguments = std::make_shared<BenchArguments>();
  Command* command = app.add_subcommand("bench", "Measure this machine's speed");
  command->require_subcommand();
  Command* ops = command->add_subcommand("ops", "Products and memory-bound ops, each alone");
  ops->add_flag("--json", arguments->is_json, "One JSON object");
  ops->callback([arguments] { bench_ops(arguments->is_json); });
  Command* step =
      add_preset_command(*command, "step", "Whole training steps of a preset, on random tokens", *arguments);
  step->add_option("--trace", arguments->trace, "Write a Chrome trace of one more step")
      ->type_name("FILE.json");
  step->add_flag("--no-products", arguments->leaves_out_products,
                 "Leave out the products by themselves and the peak");
  step->callback([arguments] { bench_step_command(*arguments); });
  add_preset_command(*command, "checkpointing",
                     "Steps under every policy of activation checkpointing, in alternation", *arguments)
      ->callback([arguments] {
        print_checkpointing(bench_checkpointing(configure(*arguments), arguments->steps), arguments->is_json);
      });
  auto parallel = std::make_shared<ParallelBenchOptions>();
  Command* ranks = add_preset_command(
      *command, "parallel", "Under mpirun: what ranks tell each other, and how much of it is hidden",
      *arguments);
  ranks->add_option("--trace", parallel->trace, "Write a Chrome trace of all ranks")->type_name("FILE.json");
  ranks->callback([arguments, parallel] {
    parallel->steps = arguments->steps;
    parallel->is_json = arguments->is_json;
    bench_parallel(configure(*arguments), *parallel);
  });
  add_head_bench(*command);
  add_precision_bench(*command);
}

}  // namespace ingot
