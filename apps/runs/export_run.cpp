// ingot export-run: a run's metrics, configuration and samples for Weights & Biases or MLflow, by their own
// SDKs.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/core/error.h"
#include "ingot/watch/export_script.h"
#include "ingot/watch/line_tail.h"

namespace ingot {
namespace {

struct ExportRunArguments {
  std::string run, project = "ingot", name, to;
  bool is_wandb = false, is_mlflow = false, has_params = false, follows = false;
};

// Becomes python with the script, so that its output and exit code are this program's.
[[noreturn]] void export_run(const ExportRunArguments& given) {
  if (given.is_wandb == given.is_mlflow)
    fail(ErrorKind::kUsage, "name one of --wandb and --mlflow: where the run is to be exported to");
  if (!given.follows && read_regular(given.run + "/run.json", 1).empty())
    fail(ErrorKind::kUsage, "{} holds no run (no run.json); name a run's folder", given.run);
  const char* named = std::getenv("INGOT_PYTHON");
  const std::string python = named && *named ? named : "python3";
  std::vector<std::string> words = {python, "-c", std::string(export_run_script()),
                                    given.is_wandb ? "--wandb" : "--mlflow", "--project=" + given.project};
  if (!given.name.empty()) words.push_back("--name=" + given.name);
  if (!given.to.empty()) words.push_back("--to=" + given.to);
  if (given.has_params) words.emplace_back("--params");
  if (given.follows) words.emplace_back("--follow");
  words.insert(words.end(), {"--", given.run});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::fflush(stdout);
  ::execvp(python.c_str(), pointers.data());
  fail(ErrorKind::kUsage,
       "{} cannot be started, and the SDKs are written in it: install Python 3.9 or newer, or name one by "
       "INGOT_PYTHON",
       python);
}

constexpr const char* kExportRunFooter =
    "The SDK must be installed where python3 (or $INGOT_PYTHON) finds it: pip install wandb, or pip install\n"
    "mlflow. Its own settings hold: WANDB_MODE=offline writes to ./wandb, MLFLOW_TRACKING_URI names a "
    "server.\n"
    "Every call makes a new run there. A run that is still going is exported as far as it is; with "
    "--follow,\n"
    "until it has ended, and the same command goes on where it was stopped.\n";

}  // namespace

void add_export_run_command(Command& app) {
  auto arguments = std::make_shared<ExportRunArguments>();
  Command* command = app.add_subcommand("export-run", "Send a run to Weights & Biases or MLflow");
  command->add_option("run", arguments->run, "The run's folder")->type_name("RUN")->required();
  command->add_flag("--wandb", arguments->is_wandb, "To Weights & Biases");
  command->add_flag("--mlflow", arguments->is_mlflow, "To MLflow");
  command->add_option("--project", arguments->project, "The project (W&B) or experiment (MLflow)")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--name", arguments->name, "The run's name there; default: the folder's")
      ->type_name("NAME");
  command->add_option("--to", arguments->to, "The server's address, in place of the SDK's own setting")
      ->type_name("URI");
  command->add_flag("--params", arguments->has_params,
                    "Export the norms of every parameter (params.jsonl) too");
  command->add_flag("--follow", arguments->follows, "Send the steps to W&B while the run goes on");
  command->footer([] { return std::string(kExportRunFooter); });
  command->callback([arguments] { export_run(*arguments); });
}

}  // namespace ingot
