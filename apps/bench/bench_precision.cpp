// ingot bench precision: compares one small model in every precision.
#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/profile/bench_precision.h"

namespace ingot {
namespace {

struct PrecisionArguments {
  PrecisionBenchOptions options;
  bool is_json = false;
};

struct Spread {
  double mean = 0, deviation = 0;
};

Spread spread(const std::vector<double>& values) {
  Spread s;
  const double n = static_cast<double>(values.size());
  for (const double v : values) s.mean += v / n;
  for (const double v : values) s.deviation += (v - s.mean) * (v - s.mean) / std::max(1.0, n - 1);
  s.deviation = std::sqrt(s.deviation);
  return s;
}

void print_row(const PrecisionBenchRow& row) {
  const Spread loss = spread(row.losses);
  fmt::print("{:<24} {:8.4f} {:8.4f} {:10.2e} {:10.2e} {:11.2e} {:>9} {:8.1f}\n", row.recipe, loss.mean,
             loss.deviation, row.gradient_error, row.saturated, row.underflowed,
             format_bytes(static_cast<double>(row.bytes)), row.step_ms);
  std::fflush(stdout);  // the next row takes minutes
}

void bench_precision_command(const PrecisionArguments& arguments) {
  const PrecisionBenchOptions& o = arguments.options;
  if (o.steps < 1 || o.seeds < 1) fail(ErrorKind::kUsage, "--steps and --seeds must be at least 1");
  if (!arguments.is_json) {
    fmt::print("4 layers x 128, bytes, {} steps of 1024 tokens, {} seeds; gradients against f64\n", o.steps,
               o.seeds);
    fmt::print("{:<24} {:>8} {:>8} {:>10} {:>10} {:>11} {:>9} {:>8}\n", "precision", "val loss", "+-",
               "gradient", "saturated", "underflowed", "memory", "ms/step");
  }
  const auto rows = bench_precision(o, [&](const PrecisionBenchRow& row) {
    if (!arguments.is_json) print_row(row);
  });
  if (!arguments.is_json) return;
  nlohmann::ordered_json json = {
      {"steps", o.steps}, {"seeds", o.seeds}, {"rows", nlohmann::ordered_json::array()}};
  for (const PrecisionBenchRow& row : rows)
    json["rows"].push_back({{"recipe", row.recipe},
                            {"losses", row.losses},
                            {"gradient_error", row.gradient_error},
                            {"saturated", row.saturated},
                            {"underflowed", row.underflowed},
                            {"bytes", row.bytes},
                            {"step_ms", row.step_ms}});
  fmt::print("{}\n", json.dump());
}

}  // namespace

void add_precision_bench(Command& bench) {
  auto arguments = std::make_shared<PrecisionArguments>();
  Command* command = bench.add_subcommand("precision", "A small model in every precision, side by side");
  command->add_option("--data", arguments->options.data, "As in ingot train")->capture_default_str();
  command->add_option("--steps", arguments->options.steps, "Of each run")->count(1)->capture_default_str();
  command->add_option("--seeds", arguments->options.seeds, "Runs of each precision")
      ->count(1)
      ->capture_default_str();
  command->add_flag("--json", arguments->is_json, "One JSON object");
  command->callback([arguments] { bench_precision_command(*arguments); });
}

}  // namespace ingot
