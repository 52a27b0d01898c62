// ingot lr-range: one short run with a growing learning rate, and the interval that it suggests for a sweep.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/ranks.h"
#include "ingot/config/config_toml.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/process/child_program.h"
#include "ingot/core/process/stop_signals.h"
#include "ingot/formats/chart/text_plot.h"
#include "ingot/run/record/folder_lock.h"
#include "ingot/run/record/run_status.h"
#include "ingot/run/run.h"
#include "ingot/sweep/lr_range.h"
#include "ingot/sweep/result_json.h"
#include "ingot/sweep/run_result.h"
#include "ingot/sweep/sweep_spec.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

struct LrRangeArguments {
  SweepSpec spec;  // without varied keys
  LrRangeSpec range;
  std::string out;
  bool is_quiet = false, is_json = false;
};

// Removes what an earlier test left; refuses to remove anything else.
void clear_run(const fs::path& run) {
  if (!path_exists(run)) return;
  if (!path_exists(run / "run.json") && !fs::is_empty(run))
    fail(ErrorKind::kUsage, "{} exists and is not a run; choose another --out", run.string());
  fs::remove_all(run);
}

// Trains in a process of its own, until the last step or the first loss that is not finite.
void train(const fs::path& out, int64_t steps, Console& console, const StopSignals& signals) {
  const fs::path errors = out / "errors.txt", run = out / "run";
  ChildProgram child(
      {this_program().string(), "train", (out / "config.toml").string(), "--out", run.string()}, errors);
  std::optional<int> code;
  bool is_told = false;
  for (int64_t poll = 0; !(code = child.poll()); ++poll) {
    if (signals.is_stop_requested() && !is_told) child.signal(SIGTERM);
    is_told = signals.is_stop_requested();
    if (console.is_live() && poll % 25 == 0)
      if (const auto status = read_run_status(run))
        console.live(fmt::format("step {} of {}", status->steps, steps));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (is_told) {
    console.line("interrupted; the same command begins again");
    throw Exit{kExitInterrupted};
  }
  if (*code == 0 || *code == exit_code(ErrorKind::kNumerics)) return;
  fmt::print(stderr, "ingot: {}\n", last_error(errors));
  throw Exit{*code};
}

// The plot for terminals has a linear axis, so it shows the rates' logarithms.
std::string drawing(const LrRange& range) {
  LinePlot plot = lr_range_plot(range);
  plot.x_label = "log10 of optimizer.lr";
  plot.is_log_x = false;
  plot.series.erase(plot.series.begin());  // the losses that are not smoothed
  for (double& x : plot.series[0].x) x = std::log10(x);
  return render_text(plot, 72, 12);
}

void find_range(LrRangeArguments arguments) {
  if (is_launched())
    fail(ErrorKind::kUsage,
         "the range test starts its run itself, with one rank: start it without mpirun or srun");
  const RunConfig config = lr_range_config(base_config(arguments.spec), arguments.range);
  if (arguments.out.empty()) arguments.out = "lr-range/" + fs::path(arguments.spec.source).stem().string();
  const fs::path out = arguments.out;
  const StopSignals signals([](const char* name) { fmt::print(stderr, "{}: the run ends\n", name); });
  const std::unique_ptr<Console> console =
      arguments.is_quiet ? Console::quiet()
                         : Console::standard({.fd = arguments.is_json ? STDERR_FILENO : STDOUT_FILENO,
                                              .is_stop_requested = &signals.is_stop_requested()});
  make_folders(out);
  const FolderLock lock(out);
  clear_run(out / "run");
  write_file(out / "config.toml", config_toml(config, ConfigDocs::kNone));
  train(out, arguments.range.steps, *console, signals);
  fs::remove_all(out / "run" / "checkpoints");  // weights after rates as high as these are of no use
  const LrRange range = read_lr_range(out / "run", arguments.range);
  const std::string json = lr_range_json(range, arguments.range);
  write_file(out / "lr-range.json", json);
  write_file(out / "lr-range.svg", render_svg(lr_range_plot(range)));
  if (arguments.is_json)
    fmt::print("{}", json);
  else
    console->line(drawing(range));
  if (!range.interval) fail(ErrorKind::kUsage, "{}", range.problem);
  if (arguments.is_json) return;
  console->line(
      fmt::format("the loss has fallen at {:.3g} and rises from {:.3g} on | written: {}/lr-range.svg",
                  *range.knee, *range.rises_at, arguments.out));
  console->line("the sweep that finds the best rate:\n" + shell_line(sweep_words(arguments.spec)) + " " +
                lr_range_vary(range) + " --seeds 2");
}

constexpr const char* kLrRangeFooter =
    "One run, in which the rate grows by a constant factor per step. The command finds the rate at which\n"
    "nine tenths of the loss's fall are done, and prints the sweep from a quarter of that rate to four "
    "times\n"
    "it. Groups with rates of their own keep their ratio to optimizer.lr. DIR/lr-range.json, lr-range.svg\n"
    "and run/ have the losses.\n";

}  // namespace

void add_lr_range_command(Command& app) {
  auto arguments = std::make_shared<LrRangeArguments>();
  Command* command =
      app.add_subcommand("lr-range", "Find a first interval for the learning rate in one short run");
  command->add_option("config", arguments->spec.source, "A preset, or a TOML file's path")
      ->type_name("PRESET|FILE.toml")
      ->required();
  command->add_option("--from", arguments->range.from, "The first rate")->capture_default_str();
  command->add_option("--to", arguments->range.to, "The last rate")->capture_default_str();
  command->add_option("--steps", arguments->range.steps, "Steps of the run")->capture_default_str();
  command->add_option("--data", arguments->spec.data, "Text to train on, as for `ingot train`")
      ->type_name("PATH ...");
  command->add_option("--set", arguments->spec.overrides, "Override a key; may be repeated")
      ->type_name("key=value")
      ->repeated();
  command->add_option("--out", arguments->out, "The test's folder; default lr-range/<preset>")
      ->type_name("DIR");
  command->add_flag("--quiet", arguments->is_quiet, "Print warnings and errors only, and what --json prints");
  command->add_flag("--json", arguments->is_json, "Print lr-range.json");
  command->footer([] { return std::string(kLrRangeFooter); });
  command->callback([arguments] { find_range(*arguments); });
}

}  // namespace ingot
