#include "ingot/checkpoint/checkpoint.h"

#include <xxhash.h>
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ingot/checkpoint/fp8_history.h"
#include "ingot/checkpoint/hf_weights.h"
#include "ingot/checkpoint/loaded_checks.h"
#include "ingot/checkpoint/rank_tensors.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/file.h"
#include "ingot/memory/memory_check.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<Tensor> masters(ParamStore& params) {
  std::vector<Tensor> all;
  for (size_t p = 0; p < params.list().specs().size(); ++p) all.push_back(params.master(static_cast<int>(p)));
  return all;
}

Json read_json(const fs::path& path) {
  const Json json = Json::parse(read_file(path), nullptr, false);
  if (!json.is_object())
    fail(ErrorKind::kData, "{}: is not a JSON object; use another checkpoint", path.string());
  return json;
}

template <typename T>
T field(const Json& json, const char* key, const fs::path& path) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number())
    fail(ErrorKind::kData, "{}: \"{}\" must be a number; use another checkpoint", path.string(), key);
  return found->get<T>();
}

// Returns an empty list if the field is missing, as it is in older checkpoints.
template <typename T>
std::vector<T> list_field(const Json& json, const char* key, const fs::path& path) {
  const auto found = json.find(key);
  if (found == json.end()) return {};
  try {
    return found->template get<std::vector<T>>();
  } catch (const Json::exception&) {
    fail(ErrorKind::kData, "{}: \"{}\" must be a list of numbers; use another checkpoint", path.string(),
         key);
  }
}

// Does nothing if the run no longer has a dynamic loss scale.
void restore_scaler(LossScaler& scaler, const std::vector<double>& numbers, const fs::path& path) {
  if (!scaler.is_dynamic()) return;
  if (numbers.size() != 3 || !(numbers[0] > 0))
    fail(ErrorKind::kData,
         "{}: \"loss_scaler\" must be a scale, good steps and tolerated overflows; use another checkpoint",
         path.string());
  scaler.set_state({.scale = numbers[0],
                    .good_steps = static_cast<int64_t>(numbers[1]),
                    .tolerated = static_cast<int64_t>(numbers[2])});
}

// Reads the moving averages of the weights into the masters.
void read_averages(const fs::path& checkpoint, ParamStore& params) {
  const fs::path path = checkpoint / "optimizer.safetensors";
  const auto missing = [&] {
    fail(ErrorKind::kUsage,
         "{}: holds no moving average of the weights; leave out --ema, or train with optimizer.ema",
         checkpoint.string());
  };
  if (!path_exists(path)) missing();
  const SafetensorsFile file(path);
  check_finite(file, "ema.");
  for (int id = 0; id < static_cast<int>(params.list().specs().size()); ++id) {
    const SafetensorsEntry* entry = file.find("ema." + params.list()[id].name);
    if (!entry) missing();
    const Tensor w = params.master(id);
    if (entry->dtype != DType::f32 || entry->bytes.size() != w.bytes())
      fail(ErrorKind::kData, "{}: tensor {} is {} {}, the model has {} weights there", file.label(),
           entry->name, entry->dtype_name, entry->shape_text(), w.elements());
    std::memcpy(w.data, entry->bytes.data(), w.bytes());
  }
}

// Returns the checkpoint that `path` stands for.
fs::path resolve(const fs::path& path, const DamageReport& report) {
  if (path_exists(path / "config.json")) return path;
  for (const fs::path& folder : {path / "checkpoints", path}) {
    if (list_checkpoints(folder).empty()) continue;
    if (const auto found = newest_good_checkpoint(folder, report)) return found->path;
    fail(ErrorKind::kData, "{}: every checkpoint in it is damaged", folder.string());
  }
  fail(ErrorKind::kData,
       "{}: is no checkpoint (config.json is missing) and no run's folder; give a folder like "
       "runs/NAME/checkpoints/step-000000100",
       path.string());
}

// Reads a checkpoint's config.toml. Its errors are kData, because they are faults of a file and not of a
// command line.
RunConfig read_run_config(const fs::path& path) {
  try {
    ConfigBuilder builder;
    builder.add_toml(read_file(path), path.string());
    return builder.build();
  } catch (const Error& error) {
    throw Error(error.what(), ErrorKind::kData);
  }
}

void verify(const fs::path& path) {
  if (!path_exists(path / kManifestName)) {
    if (path_exists(path / "trainer.json"))
      fail(ErrorKind::kData,
           "{}: {} is missing, which a checkpoint with a trainer.json has: damage could not be found; use "
           "another "
           "checkpoint",
           path.string(), kManifestName);
    return;  // a checkpoint that Ingot did not write
  }
  const std::vector<ManifestProblem> problems = verify_checkpoint(path);
  if (!problems.empty())
    fail(ErrorKind::kData, "{}: {} {}; use another checkpoint", path.string(), problems[0].file,
         problems[0].what);
}

}  // namespace

TrainerState load_checkpoint(const fs::path& path, Trainer& trainer) {
  const fs::path state_path = path / "trainer.json";
  const Json json = read_json(state_path);
  TrainerState state{
      .step = field<int64_t>(json, "step", state_path),
      .tokens = field<int64_t>(json, "tokens", state_path),
      .sample_position = field<int64_t>(json, "sample_position", state_path),
      .spent_s = field<double>(json, "spent_s", state_path),
      .data_hash = field<uint64_t>(json, "data_hash", state_path),
      .recent_losses = list_field<double>(json, "recent_losses", state_path),
      .excluded_samples = list_field<std::array<int64_t, 2>>(json, "excluded_samples", state_path),
      .val_hash = {}};
  const SafetensorsFile weights(path / "model.safetensors");
  read_rank_masters(weights, trainer);
  read_rank_states(SafetensorsFile(path / "optimizer.safetensors"), trainer);
  trainer.state().optimizer.set_t(field<int64_t>(json, "optimizer_t", state_path));
  read_fp8_history(path / "fp8.safetensors", trainer.state().fp8);
  if (json.contains("val_hash")) state.val_hash = field<uint64_t>(json, "val_hash", state_path);
  const auto scaler = list_field<double>(json, "loss_scaler", state_path);
  if (!scaler.empty()) restore_scaler(trainer.state().loss_scaler, scaler, state_path);
  trainer.params().refresh_compute(*trainer.layout().stream);
  trainer.state().steps_done = state.step;
  return state;
}

namespace {

ModelFolder read_folder(const fs::path& path) {
  const bool is_own = path_exists(path / "config.toml");
  ModelFolder folder{
      .path = path, .config_path = path / (is_own ? "config.toml" : "config.json"), .config = {}};
  if (is_own) {
    const RunConfig run = read_run_config(folder.config_path);
    folder.config = run.model;
    folder.compute = run.precision.compute;
    folder.model_type = "ingot";
    if (folder.config.vocab == 0)
      folder.config.vocab = load_tokenizer(folder.path / "tokenizer.json")->vocab_size();
  } else {
    const HfModelConfig hf = parse_hf_config(read_file(folder.config_path), folder.config_path.string());
    folder.model_type = hf.model_type;
    folder.config = from_hf_config(hf);
  }
  return folder;
}

}  // namespace

ModelFolder read_model_folder(const fs::path& given, const DamageReport& report) {
  ModelFolder folder = read_folder(resolve(given, report));
  check_sizes(folder.config, SafetensorsSet::open(folder.path), folder.config_path);
  return folder;
}

StartWeights read_start_weights(const fs::path& path, Trainer& trainer) {
  if (trainer.layout().mesh->world->rank() == 0) verify(path);
  const ModelFolder folder = read_folder(path);
  const std::string config = read_file(folder.config_path);
  const SafetensorsSet weights = SafetensorsSet::open(path);
  const Transformer& model = *trainer.layout().model;
  check_hf_tensors(weights, model);
  read_rank_masters(weights, trainer);
  trainer.params().refresh_compute(*trainer.layout().stream);
  return {.model_type = folder.model_type,
          .config_hash = XXH3_64bits(config.data(), config.size()),
          .tensors = weights.tensors(),
          .files = weights.files().size()};
}

LoadedModel load_model(const fs::path& given, std::optional<DType> compute, LoadedWeights weights,
                       const DamageReport& report) {
  const fs::path path = resolve(given, report);
  verify(path);
  const ModelFolder folder = read_folder(path);
  LoadedModel loaded;
  loaded.tokenizer = load_tokenizer(path / "tokenizer.json");
  const SafetensorsSet files = SafetensorsSet::open(path);
  check_sizes(folder.config, files, folder.config_path);
  const DType dtype = compute.value_or(folder.compute);
  loaded.model = std::make_unique<Transformer>(folder.config.resolved(), dtype);
  check_hf_tensors(files, *loaded.model);
  check_finite(files);
  const ResidentStore planned(loaded.model->params(), dtype, false, Masters::kF32, Device::kCpu,
                              Backing::kAddresses);
  require_memory(planned.params_arena().capacity_bytes(), "the weights of " + path.string());
  loaded.params = std::make_unique<ResidentStore>(loaded.model->params(), dtype, false);
  read_hf_tensors(files, *loaded.model, masters(*loaded.params));
  if (weights == LoadedWeights::kAveraged) read_averages(path, *loaded.params);
  Stream stream;
  loaded.params->refresh_compute(stream);
  return loaded;
}

}  // namespace ingot
