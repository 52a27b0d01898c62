// The program's commands without their command lines: train a run, evaluate and sample a checkpoint. All
// functions throw ingot::Error, and print only through the console or sink that they are given.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/checkpoint/served_model.h"
#include "ingot/comm/mesh.h"
#include "ingot/config/config.h"
#include "ingot/core/dtype.h"
#include "ingot/infer/texts_in_order.h"
#include "ingot/ops/sample.h"
#include "ingot/run/resume_check.h"
#include "ingot/train/trainer.h"

namespace ingot {

class Console;    // console/console.h
class RunFolder;  // run/record/run_folder.h

constexpr int kExitInterrupted = 75;  // --resume continues the run, if there was something to save

struct TrainOutcome {
  // kStopped: train.stop_at was reached. kNotBegun: interrupted while the text was read, with nothing to
  // save.
  enum class Status { kCompleted, kStopped, kInterrupted, kNotBegun };
  Status status = Status::kCompleted;
  int64_t steps = 0, tokens = 0;  // totals of the run, including resumed parts
  EvalResult final_eval = {};
  std::filesystem::path checkpoint = {};  // the last one saved
};

// Trains until train.steps, train.stop_at, train.max_time or `is_interrupted`, and saves a checkpoint before
// it returns (except kNotBegun). The caller has opened and locked the folder. With is_resume, continues from
// the newest good checkpoint in it. Throws a kUsage error if there is none, or if it does not fit the
// configuration; other text must be accepted (run/resume_check.h). With several ranks all of them call it,
// each with its own folder and its mesh; interrupting one rank interrupts all.
TrainOutcome run_training(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
                          const std::atomic<bool>& is_interrupted, Mesh& mesh,
                          DataMismatch data_mismatch = DataMismatch::kRefused);

// A checkpoint is a folder that Ingot or Hugging Face transformers wrote, a run's folder (its newest good
// checkpoint), or its checkpoints/.
struct EvalOptions {
  std::vector<std::string> data;
  std::string text_field = "text";
  ServedOptions model = {};  // on the CPU; 8-bit codes are widened to the compute dtype
  int64_t batch_size = 8;    // windows per batch
  int64_t max_tokens = 0;    // 0: all
  EvalProgress should_continue = {};
};
struct CheckpointEval {
  EvalResult result;
  int64_t context = 0;
  std::filesystem::path checkpoint = {};  // the one that was evaluated, of a run the newest
  std::string warning = {};               // the text is text that the run was trained on; or ""
};
CheckpointEval evaluate_checkpoint(const std::filesystem::path& checkpoint, const EvalOptions& options);

struct GenerateOptions {
  std::vector<std::string> prompts = {""};
  bool finds_special = false;  // special tokens that the prompts spell are tokens
  ServedOptions model;
  int64_t tokens = 256;  // for each prompt; at least 1
  SampleConfig sample;
  uint64_t seed = 1337;  // of the first prompt; prompt i has seed + i
  int64_t batch = 16;    // prompts that are continued at the same time
};
// Passes each prompt and its continuation to `write` as soon as characters are complete, one prompt after the
// other. Before that, it passes the checkpoint that it has read to `read`. Throws the errors of ServedModel.
void generate_from_checkpoint(const std::filesystem::path& checkpoint, const GenerateOptions& options,
                              const TextsInOrder::Sink& write,
                              const std::function<void(const std::filesystem::path&)>& read = {});

}  // namespace ingot
