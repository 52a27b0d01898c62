// A checkpoint is a folder that Hugging Face transformers can load directly and that holds everything a
// run needs to continue with bit-identical results.
//
//   model.safetensors, config.json, generation_config.json   the model, f32, under Hugging Face's names; with
//                           lora.rank adapter_model.safetensors and adapter_config.json, under PEFT's names,
//                           replace model.safetensors
//   tokenizer.json, tokenizer_config.json
//   optimizer.safetensors   each rule's state as it declares it: m.NAME, v.NAME (n) f32, with Ingot's names
//   fp8.safetensors         NAME.amax (steps) f32, oldest first: the history of delayed scaling, if used
//   trainer.json            step, tokens, position in the data, excluded samples, recent losses, the
//                           optimizer's t, hashes of the data; with f16 also the loss scale, its good steps
//                           and its tolerated overflows
//   config.toml             the run's configuration
//   MANIFEST.json           sizes and hashes of all these files; "finite": 1 says that all numbers are finite
//
// A checkpoint does not depend on the number of ranks that saved it; any number of ranks can load it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/checkpoint/hf_model.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/train/trainer.h"

namespace ingot {

// TrainerState is the state of a run except for its weights and its optimizer.
struct TrainerState {
  int64_t step = 0;                   // steps done
  int64_t tokens = 0;                 // targets trained on so far
  int64_t sample_position = 0;        // index of the next global sample
  double spent_s = 0;                 // time used of train.max_time; 0 in a run that counts steps
  uint64_t data_hash = 0;             // TokenSource::content_hash of the training stream
  std::vector<double> recent_losses;  // input of the spike detector, oldest first
  // Ranges [begin, end) of global samples that are never used again after a rollback, in ascending order.
  std::vector<std::array<int64_t, 2>> excluded_samples;
  // TokenSource::content_hash of the validation stream; nullopt in older checkpoints.
  std::optional<uint64_t> val_hash = {};
  std::vector<double> recent_norms = {};  // Guard::norms; empty in older checkpoints
  bool is_norm_rise_reported = false;
  std::optional<uint64_t> base_fingerprint = {};  // with lora.rank: weights_fingerprint of the frozen weights
};

// Throws a kData error unless the weights in `base` are those on which the adapters of a checkpoint were
// trained.
void require_base(const std::filesystem::path& checkpoint, const std::filesystem::path& base,
                  std::optional<uint64_t> trained_on, uint64_t found);

// Writes and commits a checkpoint and returns its path on every rank. config_text becomes config.toml. All
// ranks call it; only rank 0 has a store, the others pass null. Throws the errors of CheckpointWriter, which
// can also save while training continues.
std::filesystem::path save_checkpoint(CheckpointStore* store, Trainer& trainer, const Tokenizer& tokenizer,
                                      const std::string& config_text, const TrainerState& state);

// Loads weights, optimizer and step of a verified checkpoint into the trainer. Throws a kData error that
// names the file and the tensor if something does not fit.
TrainerState load_checkpoint(const std::filesystem::path& path, Trainer& trainer);

// ModelFolder describes the model in a folder. It is read from the configuration, without the weights.
struct ModelFolder {
  std::filesystem::path path, config_path;  // the checkpoint itself; its config.toml or config.json
  ModelConfig config;                       // as the file has it; its vocab is set
  DType compute = DType::f32;               // as Ingot trained it; f32 for checkpoints of transformers
  std::string model_type = {};              // "ingot" with a config.toml, else as in config.json: "llama"
  // The folder of the frozen model if the checkpoint has only adapters of it; otherwise empty.
  std::filesystem::path base = {};
};

// Reads the config of a checkpoint of Ingot or of transformers; `given` is as for load_model. Throws a kData
// error if it has no config, a model that Ingot does not compute, or sizes that its weights cannot have
// (check_sizes).
ModelFolder read_model_folder(const std::filesystem::path& given, const DamageReport& report);

// The folder from which a trainer's weights were read.
struct StartWeights {
  // A checkpoint of Ingot: its configuration, and how far it was trained.
  struct Training {
    RunConfig config;
    int64_t step = 0, tokens = 0;
    double spent_s = 0;
  };
  std::string model_type;    // as ModelFolder::model_type
  uint64_t config_hash = 0;  // XXH3-64 of its config.json, or of the config.toml of a checkpoint of Ingot
  size_t tensors = 0, files = 0;
  uint64_t fingerprint = 0;               // weights_fingerprint
  std::optional<Training> training = {};  // nullopt for other checkpoints
};

// Reads the weights of a trainer from a folder: each rank reads its own shards. Optimizer and step stay as
// they are. Rank 0 verifies a checkpoint of Ingot first. Throws a kData error that names file and tensor if
// one is missing or does not fit the trainer's model.
StartWeights read_start_weights(const std::filesystem::path& folder, Trainer& trainer);

// A model for evaluation or sampling, without gradients. In bf16 and f16 its matrices have no f32 masters.
struct LoadedModel {
  std::filesystem::path path;  // the checkpoint that was read; not a link
  std::unique_ptr<Transformer> model;
  std::unique_ptr<ParamStore> params;  // a ResidentStore or, with kInt8, an Int8Weights
  std::unique_ptr<Tokenizer> tokenizer;
};

// The weights to load: the trained ones or their moving averages (optimizer.ema). Loading throws a kUsage
// error if the checkpoint has no averages.
enum class LoadedWeights { kTrained, kAveraged };

// The format in which the matrices of a loaded model are stored: its compute dtype, or 8-bit codes for
// generation on the CPU (nn/int8_weights.h). The codes are made from the file's numbers.
enum class MatrixFormat { kCompute, kInt8 };

// Loads a model. path: a checkpoint of Ingot or of transformers (one file or several), a run's folder, or its
// checkpoints/ folder. In a run's folder the newest good checkpoint is used, and damaged ones are passed to
// `report`. Of an Ingot checkpoint, only the files that are read are verified, before they are read: a
// damaged optimizer state does not matter unless the averages are read from it. compute: f32, bf16, f16, or
// nullopt for the run's own dtype (f32 for checkpoints of transformers).
LoadedModel load_model(const std::filesystem::path& path, std::optional<DType> compute, LoadedWeights weights,
                       const DamageReport& report, MatrixFormat format = MatrixFormat::kCompute);

// Loads, in f32, the mean of the weights of a run's newest `count` good checkpoints; path is the newest one.
// Damaged ones are reported and replaced by older ones. run: its folder, or its checkpoints/ folder. Throws a
// kUsage error if it has fewer.
LoadedModel load_mean_model(const std::filesystem::path& run, int64_t count, LoadedWeights weights,
                            const DamageReport& report);

}  // namespace ingot
