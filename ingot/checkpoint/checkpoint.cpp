#include "ingot/checkpoint/checkpoint.h"

#include <xxhash.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>
#include <utility>

#include "ingot/checkpoint/adapters.h"
#include "ingot/checkpoint/fp8_history.h"
#include "ingot/checkpoint/hf_weights.h"
#include "ingot/checkpoint/loaded_checks.h"
#include "ingot/checkpoint/rank_tensors.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/data/hub_hint.h"
#include "ingot/data/tokenizer/tokenizer_side_files.h"
#include "ingot/memory/memory_check.h"
#include "ingot/nn/int8_weights.h"
#include "ingot/ops/cast.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kOptimizerName = "optimizer.safetensors";

// The files of a checkpoint of Ingot that a loaded model is made of; the last has the moving averages.
constexpr std::array<std::string_view, 9> kReadFiles{
    "config.json",         "config.toml",    "tokenizer.json", "tokenizer_config.json", kChatTemplateFile,
    kGenerationConfigName, kSafetensorsName, kAdapterName,     kOptimizerName};
std::span<const std::string_view> read_files(LoadedWeights weights) {
  return std::span(kReadFiles).first(kReadFiles.size() - (weights == LoadedWeights::kAveraged ? 0 : 1));
}

Json read_json(const fs::path& path) {
  const Json json = Json::parse(read_file(path), nullptr, false);
  if (!json.is_object())
    fail(ErrorKind::kData, "{}: is not a JSON object; use another checkpoint", path.string());
  return json;
}

// Returns a number of trainer.json: a whole one for an integral T, and none below 0.
template <typename T>
T field(const Json& json, const char* key, const fs::path& path) {
  const auto found = json.find(key);
  bool is_right = found != json.end();
  if constexpr (std::is_integral_v<T>)
    is_right = is_right && found->is_number_unsigned() && std::in_range<T>(found->template get<uint64_t>());
  else
    is_right = is_right && found->is_number() && found->template get<T>() >= 0;
  if (!is_right)
    fail(ErrorKind::kData, "{}: \"{}\" must be a {}number of 0 or more; use another checkpoint",
         path.string(), key, std::is_integral_v<T> ? "whole " : "");
  return found->template get<T>();
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

// Reads the moving averages of the trained parameters, and calls f(id, values) for each.
template <typename F>
void read_averages(const fs::path& checkpoint, const ParamList& params, F&& f) {
  const fs::path path = checkpoint / kOptimizerName;
  const auto missing = [&] {
    fail(ErrorKind::kUsage,
         "{}: holds no moving average of the weights; leave out --ema, or train with optimizer.ema",
         checkpoint.string());
  };
  if (!path_exists(path)) missing();
  const SafetensorsFile file(path);
  check_finite(file, "ema.");
  for (int id = 0; id < static_cast<int>(params.specs().size()); ++id) {
    if (!params[id].is_trained) continue;
    const SafetensorsEntry* entry = file.find("ema." + params[id].name);
    if (!entry) missing();
    const Shape& shape = params[id].shape;
    if (entry->dtype != DType::f32 || entry->elements() != shape.elements())
      fail(ErrorKind::kData, "{}: tensor {} is {} {}, the model has {} weights there", file.label(),
           entry->name, entry->dtype_name, entry->shape_text(), shape.elements());
    std::vector<float> values(static_cast<size_t>(shape.elements()));  // the file's numbers may be unaligned
    std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
    f(id, std::move(values));
  }
}

// Returns the checkpoint that `path` stands for. In a run's folder it is the newest one whose files in `read`
// are good.
fs::path resolve(const fs::path& path, std::span<const std::string_view> read, const DamageReport& report) {
  require_known_format(path);
  if (path_exists(path / "config.json")) return path;
  for (const fs::path& folder : {path / "checkpoints", path}) {
    if (list_checkpoints(folder).empty()) continue;
    if (const auto found = newest_usable_checkpoint(folder, report, read)) return found->path;
    fail(ErrorKind::kData, "{}: every checkpoint in it is damaged; use another run, or train it again",
         folder.string());
  }
  fail(ErrorKind::kData,
       "{}: is no checkpoint (config.json is missing) and no run's folder; give a folder like "
       "runs/NAME/checkpoints/step-000000100{}",
       path.string(), hub_hint(path));
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

// Throws a kData error unless the files in `read` are as the manifest says, if Ingot wrote the checkpoint.
void verify(const fs::path& path, std::span<const std::string_view> read) {
  if (!path_exists(path / kManifestName)) {
    if (path_exists(path / "trainer.json"))
      fail(ErrorKind::kData,
           "{}: {} is missing, which a checkpoint with a trainer.json has: damage could not be found; use "
           "another "
           "checkpoint",
           path.string(), kManifestName);
    return;  // a checkpoint that Ingot did not write
  }
  require_known_format(path);
  const std::vector<ManifestProblem> problems = verify_checkpoint_files(path, read);
  if (!problems.empty())
    fail(ErrorKind::kData, "{}: {} {}; use another checkpoint", path.string(), problems[0].file,
         problems[0].what);
}

}  // namespace

namespace {

// Throws a kData error if a number of trainer.json contradicts the manifest's metadata.
void require_same(const Manifest& manifest, const char* key, int64_t value, const fs::path& path) {
  const auto found = manifest.metadata.find(key);
  if (found != manifest.metadata.end() && found->second != ManifestValue(value))
    fail(ErrorKind::kData, "{}: \"{}\" is {}, which {} contradicts; use another checkpoint", path.string(),
         key, value, kManifestName);
}

TrainerState read_trainer_state(const fs::path& folder, const Json& json, const fs::path& path) {
  TrainerState state{.step = field<int64_t>(json, "step", path),
                     .tokens = field<int64_t>(json, "tokens", path),
                     .sample_position = field<int64_t>(json, "sample_position", path),
                     .spent_s = field<double>(json, "spent_s", path),
                     .data_hash = field<uint64_t>(json, "data_hash", path),
                     .recent_losses = list_field<double>(json, "recent_losses", path),
                     .excluded_samples = list_field<std::array<int64_t, 2>>(json, "excluded_samples", path),
                     .val_hash = {}};
  state.recent_norms = list_field<double>(json, "recent_norms", path);
  if (json.contains("norm_rise_reported"))
    state.is_norm_rise_reported = field<int64_t>(json, "norm_rise_reported", path) != 0;
  if (json.contains("val_hash")) state.val_hash = field<uint64_t>(json, "val_hash", path);
  if (json.contains("base_fingerprint"))
    state.base_fingerprint = field<uint64_t>(json, "base_fingerprint", path);
  for (const auto& [begin, end] : state.excluded_samples)
    if (begin < 0 || end < begin)
      fail(ErrorKind::kData, "{}: \"excluded_samples\" has no range [{}, {}]; use another checkpoint",
           path.string(), begin, end);
  const Manifest manifest = read_manifest(folder);
  require_same(manifest, "step", state.step, path);
  require_same(manifest, "tokens", state.tokens, path);
  return state;
}

}  // namespace

TrainerState load_checkpoint(const fs::path& path, Trainer& trainer) {
  const fs::path state_path = path / "trainer.json";
  const Json json = read_json(state_path);
  TrainerState state = read_trainer_state(path, json, state_path);
  const Transformer& model = *trainer.layout().model;
  const SafetensorsFile weights(path / weights_name(model));
  read_rank_weights(weights, saved_tensors(model), trainer);
  read_rank_states(SafetensorsFile(path / kOptimizerName), trainer);
  trainer.state().optimizer.set_t(field<int64_t>(json, "optimizer_t", state_path));
  read_fp8_history(path / "fp8.safetensors", trainer.state().fp8);
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
    folder.base = run.model.lora.rank > 0 ? run.train.init_from : "";
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

// Allocates a store of whole weights without gradients. kMemory error, naming `what`, if the machine has no
// room for it.
std::unique_ptr<ParamStore> make_store(const ParamList& list, DType compute, MatrixFormat format,
                                       const std::string& what) {
  if (format == MatrixFormat::kInt8) {
    require_memory(Int8Weights::planned_bytes(list, compute), what);
    return std::make_unique<Int8Weights>(list, compute);
  }
  const Masters masters = compute == DType::f32 ? Masters::kF32 : Masters::kNone;
  const ResidentStore planned(list, compute, false, masters, Device::kCpu, Backing::kAddresses);
  require_memory(planned.params_arena().capacity_bytes(), what);
  return std::make_unique<ResidentStore>(list, compute, false, masters);
}

}  // namespace

ModelFolder read_model_folder(const fs::path& given, const DamageReport& report) {
  ModelFolder folder = read_folder(resolve(given, read_files(LoadedWeights::kTrained), report));
  if (!folder.base.empty())
    fail(ErrorKind::kUsage,
         "{}: has the adapters alone of a run with lora.rank; write the whole model to a folder with `ingot "
         "export`, and start from that",
         folder.path.string());
  check_sizes(folder.config, SafetensorsSet::open(folder.path), folder.config_path);
  return folder;
}

StartWeights read_start_weights(const fs::path& path, Trainer& trainer) {
  if (trainer.layout().mesh->world->rank() == 0) verify(path, read_files(LoadedWeights::kTrained));
  const ModelFolder folder = read_folder(path);
  const std::string config = read_file(folder.config_path);
  const SafetensorsSet weights = SafetensorsSet::open(path);
  const Transformer& model = *trainer.layout().model;
  check_hf_tensors(weights, model);
  read_rank_weights(weights, hf_tensors(model), trainer);
  trainer.params().refresh_compute(*trainer.layout().stream);
  StartWeights start{.model_type = folder.model_type,
                     .config_hash = XXH3_64bits(config.data(), config.size()),
                     .tensors = weights.tensors(),
                     .files = weights.files().size(),
                     .fingerprint = weights_fingerprint(weights, model)};
  const fs::path state_path = path / "trainer.json";
  if (path_exists(path / "config.toml") && path_exists(state_path)) {
    const TrainerState state = read_trainer_state(path, read_json(state_path), state_path);
    start.training = StartWeights::Training{.config = read_run_config(folder.config_path),
                                            .step = state.step,
                                            .tokens = state.tokens,
                                            .spent_s = state.spent_s};
  }
  return start;
}

void require_base(const fs::path& checkpoint, const fs::path& base, std::optional<uint64_t> trained_on,
                  uint64_t found) {
  if (trained_on == found) return;
  fail(ErrorKind::kData,
       "{}: its adapters were trained on other weights than those in {} now; put that folder back as it was",
       checkpoint.string(), base.string());
}

namespace {

// Returns the folder of a checkpoint's frozen model, which is verified if it is a checkpoint of Ingot.
fs::path base_of(const ModelFolder& folder) {
  if (!path_exists(folder.base / "config.json"))
    fail(ErrorKind::kData, "{}: has adapters of the model in {}, which is not there; put that folder back",
         folder.path.string(), folder.base.string());
  verify(folder.base, read_files(LoadedWeights::kTrained));
  return folder.base;
}

// Adds a checkpoint's adapters to the weights of its frozen model.
void read_adapters(const ModelFolder& folder, LoadedWeights weights, const SafetensorsSet& base,
                   const Transformer& model, ParamStore& store) {
  const fs::path state = folder.path / "trainer.json";
  require_base(folder.path, folder.base, field<uint64_t>(read_json(state), "base_fingerprint", state),
               weights_fingerprint(base, model));
  const Transformer adapted(folder.config.resolved(), DType::f32);
  const ParamList& params = adapted.params();
  std::map<int, std::vector<float>> memory;
  const auto value = [&](int id) { return Tensor(memory.at(id).data(), DType::f32, params[id].shape); };
  if (weights == LoadedWeights::kAveraged) {
    read_averages(folder.path, params, [&](int id, auto read) { memory[id] = std::move(read); });
  } else {
    const SafetensorsFile file(folder.path / weights_name(adapted));
    std::vector<Tensor> values(params.specs().size());
    for (size_t id = 0; id < values.size(); ++id) {
      if (!params.specs()[id].is_trained) continue;
      memory[static_cast<int>(id)].resize(static_cast<size_t>(params.specs()[id].elements()));
      values[id] = value(static_cast<int>(id));
    }
    read_hf_tensors(file, saved_tensors(adapted), values);
  }
  merge_adapters(adapted, value, base, model, store);
}

}  // namespace

LoadedModel load_model(const fs::path& given, std::optional<DType> compute, LoadedWeights weights,
                       const DamageReport& report, MatrixFormat format) {
  const std::span<const std::string_view> read = read_files(weights);
  const fs::path path = resolve(given, read, report);
  if (path == given) verify(path, read);  // resolve has verified the checkpoints of a run
  const ModelFolder folder = read_folder(path);
  LoadedModel loaded;
  std::error_code ignored;
  const fs::path linked = fs::read_symlink(path, ignored);  // checkpoints/best
  loaded.path = linked.empty() ? path : path.parent_path() / linked;
  loaded.tokenizer = load_tokenizer(path / "tokenizer.json");
  const bool has_adapters = !folder.base.empty();
  const SafetensorsSet files = SafetensorsSet::open(has_adapters ? base_of(folder) : path);
  ModelConfig config = folder.config;
  config.lora = {};
  check_sizes(config, files, folder.config_path);
  const DType dtype = compute.value_or(folder.compute);
  loaded.model = std::make_unique<Transformer>(config.resolved(), dtype);
  check_hf_tensors(files, *loaded.model);
  loaded.params = make_store(loaded.model->params(), dtype, format, "the weights of " + path.string());
  if (weights == LoadedWeights::kAveraged && !has_adapters)
    read_averages(path, loaded.model->params(), [&](int id, std::vector<float> values) {
      store_weight(*loaded.params, id, Tensor(values.data(), DType::f32, loaded.model->params()[id].shape));
    });
  else
    read_hf_weights(files, *loaded.model, *loaded.params);
  if (has_adapters) read_adapters(folder, weights, files, *loaded.model, *loaded.params);
  return loaded;
}

LoadedModel load_mean_model(const fs::path& run, int64_t count, LoadedWeights weights,
                            const DamageReport& report) {
  const fs::path folder = path_exists(run / "checkpoints") ? run / "checkpoints" : run;
  LoadedModel mean;
  int64_t loaded = 0;
  for (const Checkpoint& checkpoint : list_checkpoints(folder)) {
    if (loaded == count) break;
    const auto problems = verify_checkpoint_files(checkpoint.path, read_files(weights));
    for (const ManifestProblem& problem : problems)
      report(checkpoint.path, problem.file + " " + problem.what);
    if (!problems.empty()) continue;
    LoadedModel next = load_model(checkpoint.path, DType::f32, weights, report);
    if (++loaded == 1) {
      mean = std::move(next);
      continue;
    }
    const float part = 1 / static_cast<float>(loaded);
    for (int id = 0; id < std::ssize(mean.model->params().specs()); ++id) {
      const Tensor sum = mean.params->master(id), other = next.params->master(id);
      for (int64_t i = 0; i < sum.elements(); ++i)
        sum.as<float>()[i] += part * (other.as<float>()[i] - sum.as<float>()[i]);
    }
  }
  if (loaded < count)
    fail(
        ErrorKind::kUsage,
        "{}: has {} good checkpoint{}, and the mean of {} was asked for; checkpoint.keep says how many a run "
        "keeps",
        folder.string(), loaded, loaded == 1 ? "" : "s", count);
  return mean;
}

}  // namespace ingot
