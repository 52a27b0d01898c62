// `ingot compare` shows the curves, losses and configurations of several runs next to each other.
#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/sweep/comparison_report.h"
#include "ingot/sweep/result_json.h"

namespace ingot {
namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  std::string html;
  bool is_json = false;
};

void compare(const CompareArguments& arguments) {
  std::vector<ComparedRun> runs;
  for (const std::filesystem::path& folder : run_folders(arguments.runs))
    runs.push_back(read_compared_run(folder));
  if (runs.size() < 2)
    fail(ErrorKind::kUsage, "a comparison takes two runs or more: ingot compare {} RUN", runs[0].name);
  const Comparison comparison = compare_runs(std::move(runs));
  fmt::print("{}", arguments.is_json ? comparison_json(comparison) : comparison_text(comparison));
  if (arguments.html.empty()) return;
  write_file(arguments.html, comparison_html(comparison));
  if (!arguments.is_json) fmt::print("written: {}\n", arguments.html);
}

}  // namespace

void add_compare_command(Command& app) {
  auto arguments = std::make_shared<CompareArguments>();
  Command* command = app.add_subcommand("compare", "Show how runs differ: curves, losses, configurations");
  command->add_option("runs", arguments->runs, "Runs' folders, or a sweep's folder for all of its runs")
      ->type_name("RUN ...")
      ->required();
  command->add_option("--html", arguments->html, "Write the comparison as a page too")
      ->type_name("FILE.html");
  command->add_flag("--json", arguments->is_json, "Print JSON");
  command->callback([arguments] { compare(*arguments); });
}

}  // namespace ingot
