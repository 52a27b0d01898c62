// Saves a checkpoint: what each rank writes, and what all ranks agree on before rank 0 commits it.
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/checkpoint/fp8_history.h"
#include "ingot/checkpoint/hf_weights.h"
#include "ingot/checkpoint/rank_tensors.h"
#include "ingot/comm/agree.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/finite.h"
#include "ingot/core/staging.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Makes all weights readable as f32 during its lifetime; the destructor restores them even if writing fails.
class ExpandedMasters {
 public:
  explicit ExpandedMasters(Trainer& trainer) : trainer_(trainer) {
    trainer.params().expand_masters(*trainer.layout().stream);
  }
  ~ExpandedMasters() {
    if (trainer_.params().masters() != Masters::kF32)
      trainer_.params().refresh_compute(*trainer_.layout().stream);
  }
  ExpandedMasters(const ExpandedMasters&) = delete;
  ExpandedMasters& operator=(const ExpandedMasters&) = delete;

 private:
  Trainer& trainer_;
};

// Wraps each source so that it throws a kNumerics error before a non-finite number is written.
std::vector<SafetensorsSource> checked(std::vector<SafetensorsSource> sources, const std::string& file) {
  for (SafetensorsSource& source : sources)
    source.stream = [file, name = source.name, dtype = source.dtype, bytes = source.bytes,
                     stream = source.stream](const ByteSink& sink) {
      int64_t element = 0;
      const ByteSink look = [&](std::span<const std::byte> bytes_here) {
        require_finite(file, name, dtype, element, bytes_here);
        element += static_cast<int64_t>(bytes_here.size() / size_bytes(dtype));
        sink(bytes_here);
      };
      stream ? stream(look) : look(bytes);
    };
  return sources;
}

// Writes the two large files on a single rank, hashing them on the way.
std::map<std::string, uint64_t> write_own_tensors(const fs::path& folder, Trainer& trainer) {
  TrainingStore& params = trainer.params();
  Staging staging;
  const auto read = [&](const Tensor& t) { return staging.read(t, *trainer.layout().stream); };
  std::vector<SafetensorsSource> states = optimizer_tensors(trainer.state().optimizer);
  for (size_t k = 0; k < states.size(); ++k)
    states[k].stream = [&read, &t = trainer.state().optimizer.states()[k].tensor](const ByteSink& sink) {
      const Tensor numbers = read(t);
      sink({static_cast<const std::byte*>(numbers.data), numbers.bytes()});
    };
  const auto weights = write_safetensors(
      folder / "model.safetensors",
      checked(hf_sources(*trainer.layout().model, [&](int id) { return read(params.master(id)); }),
              "model.safetensors"));
  const auto moments = write_safetensors(folder / "optimizer.safetensors",
                                         checked(std::move(states), "optimizer.safetensors"));
  return {{"model.safetensors", weights.xxh3_64}, {"optimizer.safetensors", moments.xxh3_64}};
}

void write_text(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.close();
}

std::vector<double> scaler_numbers(const LossScaler& scaler) {
  const LossScaler::State& s = scaler.state();
  return {s.scale, static_cast<double>(s.good_steps), static_cast<double>(s.tolerated)};
}

// Returns the bytes of the weights and the optimizer state in a checkpoint.
uint64_t tensor_bytes(Trainer& trainer) {
  uint64_t bytes = static_cast<uint64_t>(trainer.layout().model->params().elements()) * 4;
  for (const Optimizer::State& state : trainer.state().optimizer.states())
    bytes += static_cast<uint64_t>(state.whole.elements()) * size_bytes(state.tensor.dtype);
  return bytes;
}

// kNumerics error if a number of trainer.json is not finite, because JSON would store it as null.
void require_finite_state(const TrainerState& state, const LossScaler& scaler) {
  const auto check = [](const char* key, double value) {
    if (!std::isfinite(value)) fail(ErrorKind::kNumerics, "trainer.json: {} holds {}", key, value);
  };
  check("spent_s", state.spent_s);
  for (const double loss : state.recent_losses) check("recent_losses", loss);
  if (scaler.is_dynamic()) check("loss_scaler", scaler.state().scale);
}

std::string trainer_json(const TrainerState& state, Trainer& trainer) {
  require_finite_state(state, trainer.state().loss_scaler);
  Json json = {{"step", state.step},
               {"tokens", state.tokens},
               {"sample_position", state.sample_position},
               {"optimizer_t", trainer.state().optimizer.t()},
               {"spent_s", state.spent_s},
               {"data_hash", state.data_hash},
               {"recent_losses", state.recent_losses},
               {"excluded_samples", state.excluded_samples}};
  if (state.val_hash) json["val_hash"] = *state.val_hash;
  if (trainer.state().loss_scaler.is_dynamic())
    json["loss_scaler"] = scaler_numbers(trainer.state().loss_scaler);
  return json.dump(1) + "\n";
}

// Writes all files except model.safetensors and optimizer.safetensors.
void write_small_files(const fs::path& folder, Trainer& trainer, const Tokenizer& tokenizer,
                       const std::string& config_text, const TrainerState& state) {
  const Transformer& model = *trainer.layout().model;
  write_fp8_history(folder / "fp8.safetensors", trainer.state().fp8);
  const HfModelConfig hf = to_hf_config(model.config(), tokenizer);
  write_text(folder / "config.json", hf_config_text(hf));
  write_text(folder / "generation_config.json", hf_generation_config_text(hf));
  write_text(folder / "tokenizer.json", tokenizer.to_json());
  HfTokenizerConfig tokens{
      .bos_token = {}, .eos_token = {}, .unk_token = {}, .context = model.config().context};
  if (tokenizer.end_of_text()) tokenizer.append_bytes(*tokenizer.end_of_text(), tokens.eos_token);
  write_text(folder / "tokenizer_config.json", hf_tokenizer_config_text(tokens));
  write_text(folder / "config.toml", config_text);
  write_text(folder / "trainer.json", trainer_json(state, trainer));
}

}  // namespace

fs::path save_checkpoint(CheckpointStore& store, Trainer& trainer, const Tokenizer& tokenizer,
                         const std::string& config_text, const TrainerState& state) {
  Communicator& all = *trainer.layout().mesh->world;
  try {
    fs::path folder, path;
    agree(all, [&] {
      store.require_space(tensor_bytes(trainer) + (4 << 20));
      folder = store.begin(state.step);
    });
    std::string shared_folder = folder.string();
    all.broadcast_text(shared_folder, 0);
    std::map<std::string, uint64_t> hashes;
    {
      const ExpandedMasters expanded(trainer);
      hashes = all.size() == 1 ? write_own_tensors(folder, trainer) : write_rank_tensors(folder, trainer);
    }
    agree(all, [&] {
      write_small_files(folder, trainer, tokenizer, config_text, state);
      path = store.commit({{"tokens", state.tokens}, {std::string(kFiniteFlag), 1}}, hashes);
    });
    return path;
  } catch (...) {
    store.abandon();
    throw;
  }
}

void help_save_checkpoint(Trainer& trainer) {
  Communicator& all = *trainer.layout().mesh->world;
  if (all.size() == 1) return;
  agree(all, [] {});
  std::string folder;
  all.broadcast_text(folder, 0);
  {
    const ExpandedMasters expanded(trainer);
    write_rank_tensors(folder, trainer);
  }
  agree(all, [] {});
}

}  // namespace ingot
