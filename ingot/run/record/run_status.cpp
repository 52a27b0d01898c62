#include "ingot/run/record/run_status.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/record/heartbeat.h"
#include "ingot/run/record/process_identity.h"
#include "ingot/run/record/utc_time.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kTailBytes = size_t{1} << 16;  // bytes read from the end of metrics.jsonl; many steps

std::string text_in(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? visible_line(found->get<std::string>()) : "";
}

std::optional<int64_t> whole_in(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

json part_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : json::object();
}

ProcessIdentity process_in(const json& run) {
  const json process = part_of(run, "process");
  return {.host = text_in(process, "host"),
          .boot_id = text_in(process, "boot_id"),
          .pid_namespace = text_in(process, "pid_namespace"),
          .pid = whole_in(process, "pid").value_or(0),
          .start_ticks = static_cast<uint64_t>(whole_in(process, "start_ticks").value_or(0))};
}

void add_heartbeat(const fs::path& folder, RunStatus& status) {
  const std::optional<HeartbeatSign> sign = read_heartbeat(folder);
  if (!sign) return;
  status.steps = std::max(status.steps, sign->step);
  status.last_sign_s = std::max(sign->time_s, status.last_sign_s.value_or(0));
}

// metrics.jsonl has a line for every step; a resumed run removes the lines of steps that it repeats.
void read_last_step(const fs::path& path, RunStatus& status) {
  const std::vector<MetricsRow> rows = read_metrics_tail(path, kTailBytes);
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    const auto step = row->number("step"), loss = row->number("loss");
    if (!step || !loss) continue;
    status.steps = static_cast<int64_t>(std::clamp(*step, 0.0, 1e15));
    status.loss = loss;
    return;
  }
}

// With several ranks, a rank that fails ends the others before they can write, so the error is in its own
// record.
void read_failed_rank(const fs::path& ranks, int64_t begin_s, RunStatus& status) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(ranks, error)) {
    const fs::path path = entry.path() / "run.json";
    if (!fs::is_regular_file(path, error)) continue;
    const json run = json::parse(read_file(path), nullptr, false);
    if (text_in(run, "status") != "failed" || parse_utc(text_in(run, "end")).value_or(0) < begin_s) continue;
    status.exit_code = whole_in(run, "exit_code");
    status.error = fmt::format("rank {}: {}", entry.path().filename().string(), text_in(run, "error"));
    return;
  }
}

}  // namespace

std::optional<RunStatus> read_run_status(const fs::path& folder) {
  const fs::path path = folder / "run.json";
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  const json run = json::parse(read_file(path), nullptr, false);
  RunStatus status;
  status.status = text_in(run, "status");
  if (status.status.empty())
    fail(ErrorKind::kData,
         "{}: is no record of a run (a JSON object with a status); remove it, or give another folder",
         path.string());
  const ProcessIdentity process = process_in(run);
  status.steps = whole_in(run, "steps").value_or(0);
  status.host = process.host;
  status.pid = process.pid;
  status.exit_code = whole_in(run, "exit_code");
  status.error = text_in(run, "error");
  const json best = part_of(run, "best");
  status.best_step = whole_in(best, "step");
  if (best.contains("val_loss") && best["val_loss"].is_number())
    status.best_val_loss = best["val_loss"].get<double>();
  const json parts = run.contains("parts") && run["parts"].is_array() ? run["parts"] : json::array();
  const std::string begin = parts.empty() ? text_in(run, "begin") : text_in(parts.back(), "begin");
  for (const std::string& sign : {begin, text_in(run, "end")})
    if (const auto time = parse_utc(sign)) status.last_sign_s = time;
  const int64_t begin_s = status.last_sign_s.value_or(0);
  const int64_t recorded_steps = status.steps;
  if (status.status == "running") add_heartbeat(folder, status);
  read_last_step(folder / "metrics.jsonl", status);
  if (status.status != "running") {
    status.steps = recorded_steps;
    return status;
  }
  const Liveness life = liveness(process, status.last_sign_s.value_or(0));
  if (life == Liveness::kGone) {
    status.status = "died";
    read_failed_rank(folder / "ranks", begin_s, status);
  }
  if (life == Liveness::kElsewhere) status.status = "running or died";
  return status;
}

std::string last_sign_text(const RunStatus& status, int64_t now_s) {
  if (!status.last_sign_s) return "at an unknown time";
  return format_time(static_cast<double>(std::max<int64_t>(now_s - *status.last_sign_s, 0))) + " ago";
}

std::string remark_on(const RunStatus& status) {
  std::string text;
  if (status.status == "running") return fmt::format("pid {}", status.pid);
  if (status.status == "running or died")
    return "on " + (status.host.empty() ? "an unknown host" : status.host);
  if (status.status == "died") text = fmt::format("pid {} is gone", status.pid);
  if (status.exit_code.value_or(0) != 0)
    text += fmt::format("{}exit code {}", text.empty() ? "" : "; ", *status.exit_code);
  if (!status.error.empty()) text += (text.empty() ? "" : ": ") + status.error;
  return text;
}

std::string describe(const RunStatus& status, int64_t now_s) {
  const std::string text = fmt::format("{} at step {}", status.status, status.steps);
  const std::string ago = last_sign_text(status, now_s), remark = remark_on(status);
  if (status.status == "running or died") return fmt::format("{}: last heartbeat {} {}", text, ago, remark);
  if (status.status == "died" || status.status == "running")
    return fmt::format("{} ({}), last heartbeat {}", text, remark, ago);
  return fmt::format("{} {}{}", text, ago, remark.empty() ? "" : ": " + remark);
}

std::string note_of_run(const fs::path& model) {
  try {
    fs::path folder = model;
    if (folder.filename().empty()) folder = folder.parent_path();  // the path ends with a slash
    std::error_code error;
    if (!fs::exists(folder / "run.json", error) && folder.filename() == "checkpoints")
      folder = folder.parent_path();
    const auto status = read_run_status(folder);
    if (!status || status->status == "completed") return "";
    return fmt::format("the run {} {}", folder.string(), describe(*status, unix_now_s()));
  } catch (const Error&) {  // the model itself may be intact
    return "";
  }
}

}  // namespace ingot
