#include "ingot/sweep/run_result.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/record/run_status.h"

namespace ingot {

namespace fs = std::filesystem;

RunResult read_run_result(const fs::path& folder) {
  RunResult result;
  const std::optional<RunStatus> status = read_run_status(folder);
  if (!status) return result;
  result.status = status->status;
  result.steps = status->steps;
  result.error = status->error;
  const MetricsCurve evaluations = read_metrics_curve(folder / "metrics.jsonl", "step", "val_loss");
  for (size_t i = 0; i < evaluations.x.size(); ++i)
    result.evaluations[static_cast<int64_t>(evaluations.x[i])] = evaluations.y[i];
  const auto json = nlohmann::json::parse(read_file(folder / "run.json"), nullptr, false);
  if (json.contains("tokens") && json["tokens"].is_number_integer()) result.tokens = json["tokens"];
  if (json.contains("val_loss") && json["val_loss"].is_number()) result.val_loss = json["val_loss"];
  if (status->status == "died") result.status = "interrupted";
  if (status->status == "running or died")
    fail(ErrorKind::kUsage, "{}: the run belongs to the machine {}; go on there, or remove the folder",
         folder.string(), status->host);
  const bool is_non_finite = status->exit_code == exit_code(ErrorKind::kNumerics);
  if ((result.status == "failed" && is_non_finite) || (result.status == "completed" && !result.val_loss))
    result.status = "diverged";
  return result;
}

bool can_resume(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", error))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

std::string last_error(const fs::path& errors) {
  std::error_code error;
  if (!fs::is_regular_file(errors, error)) return "";
  std::string text = "\n" + read_file(errors);
  text.erase(text.find_last_not_of(" \n") + 1);
  constexpr std::string_view kLabel = "\ningot: ";  // begins a run's error; lines of a launcher may follow
  const size_t labelled = text.rfind(kLabel);
  const size_t begin = labelled == std::string::npos ? text.rfind('\n') + 1 : labelled + kLabel.size();
  return visible_line(text.substr(begin, text.find('\n', begin) - begin));
}

}  // namespace ingot
