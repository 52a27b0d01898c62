// A checkpoint of a run: a folder that Hugging Face transformers loads as it is, and that carries everything
// a run needs to go on bit by bit.
//
//   model.safetensors, config.json, generation_config.json   the model, f32, under Hugging Face's names
//   tokenizer.json, tokenizer_config.json
//   optimizer.safetensors   each rule's state as it declares it: m.NAME, v.NAME (n) f32 by our names
//   fp8.safetensors         NAME.amax (steps) f32, oldest first: the history of delayed scaling, if any
//   trainer.json            step, tokens, position in the data, samples left out, recent losses,
//                           optimizer's t, hashes of the data; in f16 the loss scale, its good steps and
//                           tolerated overflows
//   config.toml             the run's configuration
//   MANIFEST.json           sizes and hashes of all of these; "finite": 1, as every number in them is
//                           finite
//
// Nothing in it tells on how many ranks it was saved, or keeps it from being loaded on any other number.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/hf_config.h"
#include "ingot/train/trainer.h"

namespace ingot {

// Where a run stands, beside weights and optimizer.
struct TrainerState {
  int64_t step = 0;                   // steps done
  int64_t tokens = 0;                 // predicted so far
  int64_t sample_position = 0;        // next global sample
  double spent_s = 0;                 // of train.max_time; 0 in a run that counts steps
  uint64_t data_hash = 0;             // TokenSource::content_hash of the training stream
  std::vector<double> recent_losses;  // what the spike detector compares with, oldest first
  // [begin, end) of global samples that are never taken again, rising: what runs were rolled back from.
  std::vector<std::array<int64_t, 2>> excluded_samples;
  // TokenSource::content_hash of the validation stream; absent in older checkpoints.
  std::optional<uint64_t> val_hash = {};
};

// Writes and commits one; returns its path. config_text is kept as config.toml. Rank 0 calls it, and all
// other ranks call help_save_checkpoint: each writes what it keeps of weights and state into the same files,
// flushes it, and rank 0 commits when all are done. If a rank ends before that, nothing is committed and
// older ones stay. If the work of a rank fails, all ranks throw its error, nothing half-written stays, and it
// may be tried again: kDisk or kData for what the file system refuses, kNumerics naming the tensor and the
// element for a number that is not finite.
std::filesystem::path save_checkpoint(CheckpointStore& store, Trainer& trainer, const Tokenizer& tokenizer,
                                      const std::string& config_text, const TrainerState& state);

void help_save_checkpoint(Trainer& trainer);

// Weights, optimizer and step of a verified checkpoint into the trainer. kData error naming file and tensor
// for what does not fit.
TrainerState load_checkpoint(const std::filesystem::path& path, Trainer& trainer);

// A model to evaluate or to sample from, without gradients.
struct LoadedModel {
  std::unique_ptr<Transformer> model;
  std::unique_ptr<ResidentStore> params;
  std::unique_ptr<Tokenizer> tokenizer;
};

// The weights as they were trained, or their moving averages (optimizer.ema); kUsage error if there are none.
enum class LoadedWeights { kTrained, kAveraged };

// path: a checkpoint of Ingot's or of transformers' (GPT-2, LLaMA), a run's folder, or its checkpoints/.
// compute: "f32", "bf16", "f16", or empty for the run's own (transformers' checkpoints: f32). Ingot's own are
// verified first; in a run's folder the newest good one is taken, damaged ones are named through `report`.
LoadedModel load_model(const std::filesystem::path& path, const std::string& compute, LoadedWeights weights,
                       const DamageReport& report);

// The architecture in Hugging Face's terms; model_type "ingot" where transformers has no class that computes
// it.
HfModelConfig to_hf_config(const ModelConfig& config, const Tokenizer& tokenizer);
ModelConfig from_hf_config(const HfModelConfig& config);

}  // namespace ingot
