#include "ingot/run/record/run_record.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/core/parallel.h"
#include "ingot/core/process/thread_limit.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/record/run_status.h"
#include "ingot/run/record/utc_time.h"
#include "ingot/run/run.h"

namespace ingot {
namespace {

using nlohmann::ordered_json;

ordered_json number_or_null(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

ordered_json machine_json() {
  const MachineInfo machine = machine_info();
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"instructions", machine.instructions},
          {"memory_bytes", machine.memory_bytes},
          {"system", machine.system},
          {"compiler", machine.compiler}};
}

ordered_json inputs_json(const RunInputs& inputs) {
  return {{"train_hash", fmt::format("{:016x}", inputs.train_hash)},
          {"train_tokens", inputs.train_tokens},
          {"val_hash", fmt::format("{:016x}", inputs.val_hash)},
          {"val_tokens", inputs.val_tokens},
          {"tokenizer_hash", fmt::format("{:016x}", inputs.tokenizer_hash)}};
}

ordered_json start_json(const RunStart& start) {
  return {{"folder", start.folder},
          {"model_type", start.model_type},
          {"config_hash", fmt::format("{:016x}", start.config_hash)},
          {"tensors", start.tensors},
          {"files", start.files}};
}

// The exit code of the process; null while it runs.
// Returns what a peak of products depends on, as text.
std::string peak_identity(const ordered_json& record) {
  const auto text = [&](const char* pointer) {
    const nlohmann::ordered_json::json_pointer at(pointer);
    return record.contains(at) ? record.at(at).dump(-1, ' ', false, ordered_json::error_handler_t::replace)
                               : "";
  };
  return fmt::format("{} {} {} {}", text("/ranks"), text("/threads"), text("/machine/cpu"),
                     text("/machine/cores"));
}

ordered_json exit_code_json(const RunSummary& run) {
  if (run.status == "running") return nullptr;
  if (run.status == "interrupted") return kExitInterrupted;
  return run.exit_code;
}

}  // namespace

RunRecord::RunRecord(const std::filesystem::path& folder) : folder_(folder), begin_s_(unix_now_s()) {
  read_parts();
}

double RunRecord::peak_before(int ranks) const {
  const ordered_json now{{"ranks", ranks}, {"threads", num_threads()}, {"machine", machine_json()}};
  return peak_before_.identity == peak_identity(now) && peak_before_.gflops > 0 ? peak_before_.gflops : 0;
}

// This process holds the lock, so a part that is "running" has died.
void RunRecord::read_parts() {
  std::optional<RunStatus> before;
  ordered_json json;
  try {
    before = read_run_status(folder_);
    if (before) json = ordered_json::parse(read_file(folder_ / "run.json"), nullptr, false);
  } catch (const Error&) {  // a damaged record does not stop a run from resuming
  }
  if (!before) return;
  ordered_json parts = ordered_json::array();
  if (json.contains("parts") && json["parts"].is_array()) parts = json["parts"];
  if (parts.empty() || !parts.back().is_object())
    parts.push_back({{"begin", nullptr}, {"end", nullptr}, {"status", before->status}});
  if (const auto peak = json.find("product_peak_gflops"); peak != json.end() && peak->is_number())
    peak_before_ = {.gflops = *peak, .identity = peak_identity(json)};
  if (json.contains("init_from"))
    start_before_ = json["init_from"].dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  if (json.contains("begin") && json["begin"].is_string()) first_begin_ = json["begin"];
  ordered_json& last = parts.back();
  if (before->status.starts_with("running") || before->status == "died") {
    last["status"] = "died";
    last["steps"] = before->steps;
    if (before->last_sign_s) last["end"] = utc_text(*before->last_sign_s);
    const std::string where = before->host == process_.host || before->host.empty()
                                  ? fmt::format("pid {} is gone", before->pid)
                                  : fmt::format("it was pid {} on {}", before->pid, before->host);
    death_before_ = fmt::format("the run died at step {} ({})", before->steps, where);
  }
  parts_before_ = parts.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void RunRecord::write(const RunSummary& run) const {
  const std::string begin = utc_text(begin_s_);
  const bool has_ended = run.status != "running";
  const ordered_json end = has_ended ? ordered_json(utc_text(unix_now_s())) : ordered_json(nullptr);
  ordered_json json;
  json["program"] = {{"version", origin.version},
                     {"commit", origin.commit},
                     {"is_modified", nullptr},
                     {"arguments", origin.arguments}};
  if (origin.is_modified) json["program"]["is_modified"] = *origin.is_modified;
  json["libraries"] = ordered_json::object();
  if (origin.libraries)
    for (const auto& [name, version] : origin.libraries()) json["libraries"][name] = version;
  json["threads"] = num_threads();
  json["threads_limit"] = thread_use().chosen.source;
  json["machine"] = machine_json();
  json["process"] = {{"host", process_.host},
                     {"boot_id", process_.boot_id},
                     {"pid_namespace", process_.pid_namespace},
                     {"pid", process_.pid},
                     {"start_ticks", process_.start_ticks}};
  json["data"] = inputs ? inputs_json(*inputs) : ordered_json(nullptr);
  json["init_from"] = start ? start_json(*start) : ordered_json::parse(start_before_);
  json["begin"] = first_begin_.empty() ? begin : first_begin_;
  json["end"] = end;
  json["status"] = run.status;
  json["exit_code"] = exit_code_json(run);
  json["error"] = run.error.empty() ? ordered_json(nullptr) : ordered_json(run.error);
  json["steps"] = run.steps;
  json["tokens"] = run.tokens;
  json["val_loss"] = number_or_null(run.val_loss);
  json["val_bits_per_byte"] = number_or_null(run.val_bits_per_byte);
  if (run.eval_tokens) json["eval_tokens"] = *run.eval_tokens;
  if (run.best_step)
    json["best"] = {{"step", *run.best_step}, {"val_loss", number_or_null(run.best_val_loss)}};
  for (const MixUse& use : run.mix)
    json["mix"].push_back({{"source", use.source},
                           {"share", use.share},
                           {"train_tokens", use.train_tokens},
                           {"epochs", use.epochs},
                           {"val_loss", number_or_null(use.val_loss)}});
  for (const auto& [name, loss] : run.val_losses) json["val_losses"][name] = number_or_null(loss);
  for (const auto& [task, figures] : run.tasks)
    for (const auto& [name, value] : figures) json["tasks"][task][name] = number_or_null(value);
  json["wall_s"] = number_or_null(run.wall_s);
  json["train_s"] = number_or_null(run.train_s);
  json["product_peak_gflops"] = number_or_null(run.product_peak_gflops);
  json["ranks"] = run.ranks;
  json["peak_rss_bytes"] = run.peak_rss_bytes;
  json["non_finite_gradients"] = run.non_finite_gradients;
  json["config_hash"] = run.config_hash;
  json["parts"] = ordered_json::parse(parts_before_);
  json["parts"].push_back({{"begin", begin},
                           {"end", end},
                           {"status", run.status},
                           {"exit_code", exit_code_json(run)},
                           {"steps", run.steps},
                           {"host", process_.host},
                           {"pid", process_.pid},
                           {"commit", origin.commit},
                           {"arguments", origin.arguments}});
  write_file(folder_ / "run.json", json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace ingot
