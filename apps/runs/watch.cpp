// ingot watch: runs in the terminal, live.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/core/error.h"
#include "ingot/core/process/stop_signals.h"
#include "ingot/watch/watcher.h"

namespace ingot {
namespace {

struct WatchArguments {
  std::vector<std::string> runs;
  int every_s = 10;
};

void watch(const WatchArguments& arguments) {
  // Must be created before any other thread starts.
  const StopSignals signals([](const char*) {});
  RunSet runs(arguments.runs);
  if (runs.size() == 0)
    fail(ErrorKind::kUsage, "there are no runs in {}; name a run's folder",
         arguments.runs.empty() ? "runs/" : arguments.runs.front());
  Terminal terminal({.is_stop_requested = &signals.is_stop_requested()});
  const WatchOptions options{.every_s = static_cast<double>(arguments.every_s),
                             .is_stop_requested = &signals.is_stop_requested()};
  if (const int code = watch_runs(runs, terminal, options); code != 0) throw Exit{code};
}

constexpr const char* kWatchFooter =
    "Shows curves, rates and samples until the runs have ended; elsewhere than on a terminal, it prints a\n"
    "line about every run that has changed. Exit code: 0 if all runs were completed or stopped; otherwise\n"
    "the exit code of the first that failed, 75 if it was interrupted, 1 if it died. Ctrl-C ends watching\n"
    "with 75, and not the runs.\n";

}  // namespace

void add_watch_command(Command& app) {
  auto arguments = std::make_shared<WatchArguments>();
  Command* command = app.add_subcommand("watch", "Show runs in the terminal until they have ended");
  command->add_option("runs", arguments->runs, "Folders of runs, or folders that hold runs; default: runs/")
      ->type_name("DIR ...");
  command
      ->add_option("--every", arguments->every_s,
                   "Seconds between two lines, where the output is no terminal")
      ->in_range(1, 86400)
      ->capture_default_str();
  command->footer([] { return std::string(kWatchFooter); });
  command->callback([arguments] { watch(*arguments); });
}

}  // namespace ingot
