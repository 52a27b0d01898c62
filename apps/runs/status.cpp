// ingot status: the status of runs, one line each.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"
#include "ingot/launch/incident_report.h"
#include "ingot/run/record/run_status.h"
#include "ingot/run/record/utc_time.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// Returns the runs in runs/, used if the command names none.
std::vector<std::string> default_runs() {
  std::vector<std::string> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("runs", error))
    if (fs::exists(entry.path() / "run.json", error)) runs.push_back(entry.path().string());
  std::ranges::sort(runs);
  if (runs.empty()) fail(ErrorKind::kUsage, "there are no runs in runs/; name a run's folder");
  return runs;
}

RunStatus status_of(const std::string& run) {
  const auto status = read_run_status(run);
  if (!status) fail(ErrorKind::kUsage, "{} holds no run (no run.json); name a run's folder", run);
  return *status;
}

void print_json(const std::vector<std::string>& runs) {
  using nlohmann::ordered_json;
  ordered_json all = ordered_json::array();
  for (const std::string& run : runs) {
    const RunStatus status = status_of(run);
    ordered_json one = {{"run", run},
                        {"status", status.status},
                        {"steps", status.steps},
                        {"loss", nullptr},
                        {"best", nullptr},
                        {"host", status.host},
                        {"pid", status.pid},
                        {"last_sign", nullptr},
                        {"exit_code", nullptr},
                        {"error", status.error},
                        {"incidents", read_incidents(run).size()}};
    if (status.loss) one["loss"] = *status.loss;
    if (status.best_step && status.best_val_loss)
      one["best"] = {{"step", *status.best_step}, {"val_loss", *status.best_val_loss}};
    if (status.last_sign_s) one["last_sign"] = utc_text(*status.last_sign_s);
    if (status.exit_code) one["exit_code"] = *status.exit_code;
    all.push_back(std::move(one));
  }
  fmt::print("{}\n", all.dump(1, ' ', false, ordered_json::error_handler_t::replace));
}

void print_status(const std::vector<std::string>& runs) {
  size_t width = 3;
  for (const std::string& run : runs) width = std::max(width, run.size());
  fmt::print("{:<{}}  {:<15}  {:>8}  {:>8}  {:>11}\n", "run", width, "status", "step", "loss", "last sign");
  for (const std::string& run : runs) {
    const RunStatus status = status_of(run);
    std::string line =
        fmt::format("{:<{}}  {:<15}  {:>8}  {:>8}  {:>11}  {}", visible_line(run), width, status.status,
                    status.steps, status.loss ? fmt::format("{:.4f}", *status.loss) : "-",
                    last_sign_text(status, unix_now_s()), remark_on(status));
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
    if (status.best_step && status.best_val_loss)
      fmt::print("  best checkpoint: step {}, validation loss {:.4f}\n", *status.best_step,
                 *status.best_val_loss);
    if (const std::string incidents = incident_summary(read_incidents(run)); !incidents.empty())
      fmt::print("  {}\n", incidents);
  }
}

}  // namespace

void add_status_command(Command& app) {
  auto runs = std::make_shared<std::vector<std::string>>();
  Command* command = app.add_subcommand("status", "How runs stand: running, ended, or died");
  command->add_option("run", *runs, "Run folders; default: all in runs/")->type_name("DIR");
  auto is_json = std::make_shared<bool>(false);
  command->add_flag("--json", *is_json, "Print a JSON array with an object per run");
  command->callback([runs, is_json] {
    const std::vector<std::string> all = runs->empty() ? default_runs() : *runs;
    *is_json ? print_json(all) : print_status(all);
  });
}

}  // namespace ingot
