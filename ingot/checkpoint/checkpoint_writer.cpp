// Saves a checkpoint: what each rank writes, and what all ranks agree on before rank 0 commits it.
#include "ingot/checkpoint/checkpoint_writer.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "ingot/checkpoint/adapters.h"
#include "ingot/checkpoint/hf_texts.h"
#include "ingot/checkpoint/hf_weights.h"
#include "ingot/comm/agree.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/finite.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

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

// Writes the two large files on a single rank and hashes them on the way.
std::map<std::string, uint64_t> write_own_tensors(const fs::path& folder, SavedState& saved) {
  Trainer& trainer = saved.trainer();
  std::vector<SafetensorsSource> states = optimizer_tensors(trainer.state().optimizer);
  for (size_t k = 0; k < states.size(); ++k)
    states[k].stream = [&saved, k](const ByteSink& sink) {
      const Tensor numbers = saved.state(k);
      sink({static_cast<const std::byte*>(numbers.data), numbers.bytes()});
    };
  const auto value = [&](int id) { return saved.values(id).reshape(trainer.params().list()[id].shape); };
  const Transformer& model = *trainer.layout().model;
  const std::string name = weights_name(model);
  const auto weights =
      write_safetensors(folder / name, checked(hf_sources(saved_tensors(model), value), name));
  const auto moments = write_safetensors(folder / "optimizer.safetensors",
                                         checked(std::move(states), "optimizer.safetensors"));
  return {{name, weights.xxh3_64}, {"optimizer.safetensors", moments.xxh3_64}};
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
  for (const double norm : state.recent_norms) check("recent_norms", norm);
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
               {"recent_norms", state.recent_norms},
               {"norm_rise_reported", state.is_norm_rise_reported ? 1 : 0},
               {"excluded_samples", state.excluded_samples}};
  if (state.val_hash) json["val_hash"] = *state.val_hash;
  if (state.base_fingerprint) json["base_fingerprint"] = *state.base_fingerprint;
  if (trainer.state().loss_scaler.is_dynamic())
    json["loss_scaler"] = scaler_numbers(trainer.state().loss_scaler);
  return json.dump(1) + "\n";
}

// Returns the contents of all text files by name.
std::map<std::string, std::string> text_files(Trainer& trainer, const Tokenizer& tokenizer,
                                              const std::string& config_text, const TrainerState& state) {
  const ModelConfig& model = trainer.layout().model->config();
  std::map<std::string, std::string> files = hf_text_files(to_hf_config(model, tokenizer), tokenizer);
  files["config.toml"] = config_text;
  files["trainer.json"] = trainer_json(state, trainer);
  if (model.lora.rank > 0)
    files[kAdapterConfigName] =
        adapter_config_text(*trainer.layout().model, trainer.config().train.init_from);
  return files;
}

// Sets a flag at the end of its life, whatever ends it.
class Announcement {
 public:
  explicit Announcement(std::atomic<bool>& flag) : flag_(flag) {}
  ~Announcement() {
    flag_.store(true);
    flag_.notify_all();
  }
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

CheckpointWriter::~CheckpointWriter() { abandon(); }

void CheckpointWriter::begin(const Tokenizer& tokenizer, const std::string& config_text,
                             const TrainerState& state, Arena* room) {
  INGOT_CHECK(!is_active(), "CheckpointWriter::begin: a checkpoint is being written");
  Communicator& all = *trainer_.layout().mesh->world;
  phase_ = Phase::kWriting;
  is_in_background_ = room != nullptr;
  try {
    agree(all, [&] {
      if (!store_) return;
      store_->require_space(tensor_bytes(trainer_) + (4 << 20));
      small_files_ = text_files(trainer_, tokenizer, config_text, state);
      fp8_history_ = copy_of_history(trainer_.state().fp8);
      folder_ = store_->begin(state.step);
    });
    tokens_ = state.tokens;
    std::string folder = folder_.string();
    all.broadcast_text(folder, 0);
    folder_ = folder;
    saved_.emplace(trainer_);
    if (all.size() > 1) {
      rank_files_.emplace(folder_, trainer_);
      agree(all, [&] {
        if (store_) rank_files_->create();
      });
    }
    // The training thread is the only one that may use the device.
    const bool is_on_host = trainer_.layout().stream->device == Device::kCpu;
    if (room) {
      room->release_to(0);
      if (!is_on_host) saved_->copy_to(*room);
    }
    is_copied_ = !room || !is_on_host;
    start([this, room = is_on_host ? room : nullptr] { write(room); });
  } catch (...) {
    abandon();
    throw;
  }
}

void CheckpointWriter::start(std::function<void()> work) {
  if (is_in_background_)
    task_.start(std::move(work));
  else
    task_.run(work);
}

// The first phase on this rank: a copy of the state, if there is room for one, and this rank's part of the
// files.
void CheckpointWriter::write(Arena* room) {
  {
    const Announcement copied(is_copied_);
    if (room) saved_->copy_to(*room);
  }
  if (is_in_background_) BackgroundTask::become_patient();
  if (rank_files_)
    rank_files_->write(*saved_);
  else
    hashes_ = write_own_tensors(folder_, *saved_);
  saved_->require_intact_copy();
}

// The second phase, on rank 0.
void CheckpointWriter::commit() {
  if (is_in_background_) BackgroundTask::become_patient();
  if (rank_files_) hashes_ = rank_files_->verify();
  write_fp8_history(folder_ / "fp8.safetensors", fp8_history_);
  for (const auto& [name, text] : small_files_) write_text(folder_ / name, text);
  path_ = store_->commit({{"tokens", tokens_}, {std::string(kFiniteFlag), 1}}, hashes_);
}

std::optional<fs::path> CheckpointWriter::advance() {
  INGOT_CHECK(is_active(), "CheckpointWriter::advance: no checkpoint is being written");
  Communicator& all = *trainer_.layout().mesh->world;
  try {
    agree(all, [&] { task_.wait(); });
    if (phase_ == Phase::kWriting) {
      phase_ = Phase::kCommitting;
      if (rank_files_) rank_files_->add_up_sums();
      if (store_) start([this] { commit(); });
      return std::nullopt;
    }
  } catch (...) {
    abandon();
    throw;
  }
  phase_ = Phase::kIdle;
  std::string path = path_.string();
  all.broadcast_text(path, 0);
  return path;
}

fs::path CheckpointWriter::finish() {
  while (true)
    if (const std::optional<fs::path> path = advance()) return *path;
}

void CheckpointWriter::abandon() noexcept {
  if (!is_active()) return;
  try {
    task_.wait();
  } catch (...) {  // the checkpoint is removed anyway
  }
  if (store_) store_->abandon();
  phase_ = Phase::kIdle;
}

fs::path save_checkpoint(CheckpointStore* store, Trainer& trainer, const Tokenizer& tokenizer,
                         const std::string& config_text, const TrainerState& state) {
  CheckpointWriter writer(store, trainer);
  writer.begin(tokenizer, config_text, state, nullptr);
  return writer.finish();
}

}  // namespace ingot
