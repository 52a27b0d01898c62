#include "ingot/plan/machine_costs.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>

#include "ingot/config/config_toml.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/core/parallel.h"
#include "ingot/core/process/child_program.h"
#include "ingot/plan/dry_step.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

constexpr double kTime_s = 1.5;      // of a measurement
constexpr double kSmallModel = 2e6;  // parameters; a model this small is measured with all its layers
constexpr int64_t kLayers = 2;       // of a larger one
constexpr double kFlops = 1.5e12;    // of a measured micro-batch, at most
constexpr int kFormat = 1;           // of the cache's files

// Everything that a measurement depends on, as text.
std::string identity(const RunConfig& form, const MeshShape& shape, int rank, int processes) {
  const MachineInfo machine = machine_info();
  return fmt::format("{}\n{}\n{}\n{} threads\n{}\nrank {}, {} at a time\n{}", kFormat, machine.cpu,
                     machine.compiler, num_threads(), shape.to_string(), rank, processes,
                     config_toml(form, ConfigDocs::kNone));
}

fs::path file_of(const fs::path& folder, const std::string& identity) {
  return folder / fmt::format("{:016x}.json", std::hash<std::string>{}(identity));
}

std::optional<std::vector<MeasuredCosts::Row>> read_rows(const fs::path& file, const std::string& identity) {
  std::ifstream in(file);
  const Json json = Json::parse(in, nullptr, false);
  if (!json.is_object() || json.value("identity", "") != identity || !json.contains("rows"))
    return std::nullopt;
  std::vector<MeasuredCosts::Row> rows;
  try {
    for (const Json& row : json["rows"])
      rows.push_back({.key = {.name = row.at("name"),
                              .form = row.at("form"),
                              .dtype = static_cast<DType>(row.at("dtype").get<int>()),
                              .flops = row.at("flops"),
                              .bytes = row.at("bytes")},
                      .seconds = row.at("seconds")});
  } catch (const Json::exception&) {  // a damaged file is measured again
    return std::nullopt;
  }
  return rows;
}

void write_rows(const fs::path& file, const std::string& identity,
                const std::vector<MeasuredCosts::Row>& rows) {
  Json list = Json::array();
  for (const MeasuredCosts::Row& row : rows)
    list.push_back({{"name", row.key.name},
                    {"form", row.key.form},
                    {"dtype", static_cast<int>(row.key.dtype)},
                    {"flops", row.key.flops},
                    {"bytes", row.key.bytes},
                    {"seconds", row.seconds}});
  try {
    make_folders(file.parent_path());
    write_file(file, Json{{"identity", identity}, {"rows", list}}.dump());
  } catch (const Error&) {  // without the cache, the next plan measures again
  }
}

}  // namespace

MeasuredForm measured_form(const RunConfig& config) {
  MeasuredForm form{.config = config};
  RunConfig& c = form.config;
  const ModelConfig model = config.model.resolved();
  const int64_t stages = config.parallel.pp * config.parallel.chunks;
  if (static_cast<double>(model.parameters()) > kSmallModel)
    c.model.layers = std::min(model.layers, std::max(kLayers, stages));
  const double rows = kFlops / (c.model.resolved().flops_per_token() * static_cast<double>(model.context));
  const int64_t ranks = config.parallel.dp * config.parallel.fsdp;
  int64_t batch = config.train.batch_size;
  while (batch % 2 == 0 && static_cast<double>(batch) > rows && batch / 2 >= ranks) batch /= 2;
  c.train.batch_size = batch;
  c.train.grad_accum =
      std::min(config.train.grad_accum, std::max<int64_t>(2 * ranks, 2 * config.parallel.pp));
  c.train.batch_ramp.clear();
  // Settings that do not change the operations are reset, so that they do not make another file in the cache.
  c.preset.clear();
  c.data = {};
  c.schedule = {};
  c.eval = {};
  c.checkpoint = {};
  c.sample = {};
  c.guard = {};
  form.tokens_ratio = static_cast<double>(batch) / static_cast<double>(config.train.batch_size);
  return form;
}

MeasuredCosts machine_costs(const RunConfig& config, const MeshShape& shape, int rank, const Sharing& sharing,
                            const std::vector<double>& unit_costs, const fs::path& folder,
                            const std::function<void(const std::string&)>& on_measuring) {
  const MeasuredForm form = measured_form(config);
  set_num_threads(sharing.threads);
  const std::string what = identity(form.config, shape, rank, sharing.ranks);
  if (!folder.empty())
    if (auto rows = read_rows(file_of(folder, what), what)) return {std::move(*rows), form.tokens_ratio};
  if (on_measuring)
    on_measuring(fmt::format("steps of {} layers on {} threads", form.config.model.layers, num_threads()));
  const auto measure = [&] {
    return measure_step(form.config, shape, rank, kTime_s, {.unit_costs = unit_costs});
  };
  std::vector<MeasuredCosts::Row> rows;
  {
    std::list<ChildProgram> others;  // They measure at the same time; their results are not needed.
    for (int i = 1; i < sharing.ranks; ++i) others.emplace_back(measure);
    rows = MeasuredCosts::rows_of(measure());
  }
  if (!folder.empty()) write_rows(file_of(folder, what), what, rows);
  return {std::move(rows), form.tokens_ratio};
}

fs::path plan_cache_folder() {
  const fs::path folder = cache_folder();
  return folder.empty() ? folder : folder / "plan";
}

}  // namespace ingot
