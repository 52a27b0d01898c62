#include "ingot/run/record/run_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/run/record/tensorboard_tags.h"

namespace ingot {
namespace {

double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

RunLog::RunLog(const RunFolder& folder, std::optional<int64_t> first_step_again)
    : path_(folder.metrics()), metrics_(folder.metrics()), params_(folder.params()) {
  if (folder.is_lead()) tensorboard_.emplace(folder.tensorboard(), unix_time_s(), first_step_again);
}

void RunLog::write(int64_t step, const std::vector<MetricsField>& fields, bool to_tensorboard) {
  std::vector<MetricsField> line = {{"step", step}};
  line.insert(line.end(), fields.begin(), fields.end());
  for (const auto& [key, value] : fields)
    if (const double* loss = std::get_if<double>(&value); loss && std::isfinite(*loss)) {
      if (key == "loss") losses_.train.add(static_cast<double>(step), *loss);
      if (key == "val_loss") losses_.validation.add(static_cast<double>(step), *loss);
    }
  metrics_.write(std::move(line));
  if (!to_tensorboard || !tensorboard_) return;
  for (const auto& [key, value] : fields)
    if (const double* number = std::get_if<double>(&value))
      tensorboard_->scalar(tensorboard_tag(key), *number, step, unix_time_s());
    else if (const int64_t* whole = std::get_if<int64_t>(&value))
      tensorboard_->scalar(tensorboard_tag(key), static_cast<double>(*whole), step, unix_time_s());
  flush_tensorboard();
}

// Lines that cannot be written stay in the writer's memory until they can.
void RunLog::flush_tensorboard() {
  try {
    if (tensorboard_) tensorboard_->flush();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDisk) throw;
  }
}

std::optional<std::string> RunLog::take_error() {
  const std::optional<std::string> metrics = metrics_.take_error(), params = params_.take_error();
  return metrics ? metrics : params;
}

void RunLog::write_config(const RunConfig& config) {
  if (!tensorboard_) return;
  tensorboard_->text("config", verbatim_markdown(config_toml(config, ConfigDocs::kNone)), 0, unix_time_s());
  tensorboard_->hparams_start(hyper_parameters(config), unix_time_s());
  flush_tensorboard();
}

void RunLog::write_completed() {
  if (!tensorboard_) return;
  tensorboard_->hparams_end(unix_time_s());
  flush_tensorboard();
}

void RunLog::write_samples(int64_t step, const std::string& text) {
  if (!tensorboard_) return;
  tensorboard_->text("samples", verbatim_markdown(text), step, unix_time_s());
  flush_tensorboard();
}

void RunLog::begin_step(const Trace& trace) {
  phase_s_.clear();
  for (const Trace::Phase& phase : trace.phases()) phase_s_.push_back(phase.time_s);
}

void RunLog::add_phases(const Trace& trace, std::vector<MetricsField>& fields) const {
  const std::vector<Trace::Phase>& phases = trace.phases();
  for (size_t i = 0; i < phases.size(); ++i) {
    const double before = i < phase_s_.size() ? phase_s_[i] : 0;
    std::string key = "ms_" + phases[i].name;
    std::ranges::replace(key, ' ', '_');
    fields.emplace_back(std::move(key), (phases[i].time_s - before) * 1e3);
  }
}

void RunLog::write_params(int64_t step, std::span<const ParamStats> stats) {
  for (const ParamStats& p : stats) {
    // The ratio is undefined for a weight that is all zero.
    const double size = p.weight_norm > 0 ? p.weight_norm : std::numeric_limits<double>::quiet_NaN();
    const std::pair<const char*, double> numbers[] = {
        {"weight_norm", p.weight_norm},
        {"grad_norm", p.grad_norm},
        {"update_ratio", p.update_norm / size},
        {"update_projection", p.update_dot_weight / (size * size)}};
    std::vector<MetricsField> line = {{"step", step}, {"param", p.name}};
    for (const auto& [key, value] : numbers) {
      line.emplace_back(key, value);
      if (tensorboard_) tensorboard_->scalar(tensorboard_param_tag(key, p.name), value, step, unix_time_s());
    }
    params_.write(std::move(line));
  }
  flush_tensorboard();
}

void RunLog::write_fp8(int64_t step, const Fp8State& fp8) {
  if (fp8.entries().empty()) return;
  std::vector<MetricsField> fields;
  for (const Fp8State::Entry& entry : fp8.entries()) {
    fields.emplace_back("fp8_saturated/" + entry.name, entry.stats.saturated);
    fields.emplace_back("fp8_underflowed/" + entry.name, entry.stats.underflowed);
    fields.emplace_back("fp8_amax/" + entry.name, static_cast<double>(entry.stats.amax));
  }
  write(step, fields, false);
}

RunLog::Evaluations RunLog::truncate_after(int64_t step, const EvalConfig& eval) {
  metrics_.truncate_after(step);
  params_.truncate_after(step);
  Evaluations left;
  const std::string loss_key = eval.best_by.empty() ? "val_loss" : "val_loss/" + eval.best_by;
  losses_ = LossCurves{};
  visit_metrics_lines(path_, [&](std::string_view line) {
    const std::optional<double> at = number_in_line(line, "step");
    if (!at) return;
    if (const auto loss = number_in_line(line, "loss")) losses_.train.add(*at, *loss);
    const std::optional<double> loss = number_in_line(line, "val_loss");
    if (!loss) return;
    losses_.validation.add(*at, *loss);
    left.last_step = static_cast<int64_t>(*at);
    const std::optional<double> judged = number_in_line(line, loss_key);
    if (!judged) return;
    left.best_loss = std::min(left.best_loss, *judged);
    left.lowest.add(left.last_step, *judged, eval.every);
    left.losses[left.last_step] = *judged;
  });
  return left;
}

}  // namespace ingot
