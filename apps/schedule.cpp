// ingot schedule: learning rate, momentum and batch size of a configuration over its run.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/run_plan.h"
#include "ingot/console/console.h"
#include "ingot/core/file.h"
#include "ingot/formats/chart/text_plot.h"
#include "ingot/profile/schedule_plot.h"
#include "ingot/run/start_model.h"

namespace ingot {
namespace {

constexpr int64_t kPoints = 600;

struct ScheduleArguments {
  std::string source;
  std::vector<std::string> data, overrides;
  std::string out;
  int columns = 72, rows = 10;
  bool is_json = false;
};

std::string length_text(const RunConfig& config, const RunPlan& plan) {
  const std::string tokens =
      fmt::format("{} tokens", format_count(static_cast<double>(plan.ramp().tokens_before(plan.steps()))));
  switch (plan.length().unit) {
    case RunUnit::kSteps:
      return fmt::format("{} steps, {}", plan.steps(), tokens);
    case RunUnit::kTokens:
      return fmt::format("{} in {} steps", tokens, plan.steps());
    case RunUnit::kTime:
      return fmt::format("{}, drawn as if it were {} steps", format_time(config.train.max_time_s),
                         plan.steps());
  }
  return "";
}

std::string schedule_json(const RunPlan& plan, const std::vector<LinePlot>& plots) {
  nlohmann::ordered_json json = {{"steps", plan.steps()}, {"curves", nlohmann::ordered_json::array()}};
  for (const LinePlot& plot : plots)
    for (const PlotSeries& series : plot.series)
      json["curves"].push_back({{"name", series.name.empty() ? plot.title : plot.title + ": " + series.name},
                                {plot.x_label.empty() ? "x" : plot.x_label, series.x},
                                {"value", series.y}});
  return json.dump() + "\n";
}

void draw_schedule(const ScheduleArguments& arguments) {
  ConfigBuilder builder;
  builder.add_source(arguments.source);
  if (!arguments.data.empty()) builder.add_texts("data.train", arguments.data, "--data");
  for (const std::string& assignment : arguments.overrides) builder.add_override(assignment);
  complete_from_start(builder);
  const RunConfig& config = builder.build();
  print_notes(builder.notes());
  const std::vector<LinePlot> plots = schedule_plots(config, kPoints);
  if (arguments.is_json)
    fmt::print("{}", schedule_json(RunPlan(config), plots));
  else
    fmt::print("{}: {}\n", arguments.source, length_text(config, RunPlan(config)));
  for (const LinePlot& plot : plots)
    if (!arguments.is_json) fmt::print("\n{}", render_text(plot, arguments.columns, arguments.rows));
  if (arguments.out.empty()) return;
  write_file(arguments.out, render_svg_column(plots));
  if (!arguments.is_json) fmt::print("\nwritten: {}\n", arguments.out);
}

}  // namespace

void add_schedule_command(Command& app) {
  auto arguments = std::make_shared<ScheduleArguments>();
  Command* command = app.add_subcommand("schedule", "Draw learning rate, momentum and batch size of a run");
  command->add_option("config", arguments->source, "A preset, or a TOML file's path")
      ->type_name("PRESET|FILE.toml")
      ->required();
  command->add_option("--data", arguments->data, "Text to train on, as for `ingot train`")
      ->type_name("PATH ...");
  command->add_option("--set", arguments->overrides, "Override a key; may be repeated")
      ->type_name("key=value")
      ->repeated();
  command->add_option("--out", arguments->out, "Write the curves as one picture too")->type_name("FILE.svg");
  command->add_option("--columns", arguments->columns, "Width of the drawing in characters")
      ->in_range(16, 400)
      ->capture_default_str();
  command->add_option("--rows", arguments->rows, "Height of each curve in lines")
      ->in_range(4, 100)
      ->capture_default_str();
  command->add_flag("--json", arguments->is_json, "Print the curves as one JSON object");
  command->callback([arguments] { draw_schedule(*arguments); });
}

}  // namespace ingot
