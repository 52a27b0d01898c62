// What the program's commands do, without their command lines: train a run, evaluate and sample a checkpoint,
// time steps. Everything here throws ingot::Error; nothing prints but through the console or sink given.
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

#include "ingot/config/config.h"
#include "ingot/core/dtype.h"
#include "ingot/ops/sample.h"
#include "ingot/run/resume_check.h"
#include "ingot/train/trainer.h"

namespace ingot {

class Console;    // console/console.h
class RunFolder;  // run/record/run_folder.h

constexpr int kExitInterrupted = 75;  // the process has saved, and --resume goes on

struct TrainOutcome {
  enum class Status { kCompleted, kStopped, kInterrupted };  // kStopped: train.stop_at was reached
  Status status = Status::kCompleted;
  int64_t steps = 0, tokens = 0;  // of the whole run, resumed parts included
  EvalResult final_eval;
  std::filesystem::path checkpoint;  // the last one saved
};

// Trains until train.steps, train.stop_at, train.max_time or `is_interrupted`; in every case a checkpoint is
// saved before it returns. The folder is open and locked by the caller; with is_resume, the newest good
// checkpoint in it is continued (kUsage error if there is none, or if the configuration is one that it cannot
// go on with; other text must be accepted: run/resume_check.h). Where parts are shared by ranks, all of
// them call it, each with the folder of its rank; an interruption of one of them is one of all.
TrainOutcome run_training(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
                          const std::atomic<bool>& is_interrupted,
                          std::unique_ptr<TrainerParts> parts = std::make_unique<TrainerParts>(),
                          OtherText other_text = OtherText::kRefused);

// A checkpoint: a folder that Ingot or Hugging Face transformers wrote, a run's folder (its newest good
// checkpoint), or its checkpoints/.
struct EvalOptions {
  std::vector<std::string> data;
  std::string text_field = "text";
  std::string compute;       // "f32", "bf16" or "f16"; empty: as it was trained
  bool is_averaged = false;  // the moving averages of the weights (optimizer.ema) in their place
  int64_t batch_size = 8;    // windows at once
  int64_t max_tokens = 0;    // 0: all
  EvalProgress goes_on = {};
};
struct CheckpointEval {
  EvalResult result;
  int64_t context = 0;
};
CheckpointEval evaluate_checkpoint(const std::filesystem::path& checkpoint, const EvalOptions& options);

struct GenerateOptions {
  std::string prompt;
  bool is_averaged = false;  // as in EvalOptions
  int64_t tokens = 256;
  SampleConfig sample;
  uint64_t seed = 1337;
};
// Hands prompt and continuation to `write` as soon as their characters are whole.
void generate_from_checkpoint(const std::filesystem::path& checkpoint, const GenerateOptions& options,
                              const std::function<void(std::string_view)>& write);

// Timing of whole steps on random tokens; no file is read or written.
struct StepBench {
  std::string preset, dtype, engine;
  int64_t steps = 0, batch_size = 0, context = 0, parameters = 0;
  double start_s = 0;            // from entering to the first step's beginning
  double step_ms = 0;            // median
  double tokens_per_s = 0;       // at the median
  double matmul_ms = 0;          // of a step on average, as traced inside the steps
  double products_alone_ms = 0;  // the same products, timed alone in this run (median)
  double peak_gflops = 0;        // of a large product, measured in this run
  std::optional<double> mfu;  // model FLOPs per second / peak; nullopt if the steps were faster than the peak
  double loss_first = 0, loss_last = 0;
  uint64_t peak_rss_bytes = 0;
  std::vector<std::pair<std::string, double>> phases_ms;  // mean per step; nested phases are in both
  std::vector<std::pair<std::string, uint64_t>> arena_bytes;
  std::string trace;  // one more step's, where it was asked for: a Chrome trace (core/timeline.h)
};
StepBench bench_step(const RunConfig& config, int64_t steps, bool wants_trace = false);

// Whole steps on random tokens under every policy of activation checkpointing, one step of each by turns.
struct CheckpointingBench {
  struct Row {
    std::string policy;
    uint64_t activation_bytes = 0;  // of the arena, for one micro-batch
    double step_ms = 0;             // median
    double recompute_ms = 0;        // of it in products, attention and norms done again (median)
    double time_change = 0;  // of the step against that of the same round where everything is kept (median)
    double time_change_low = 0, time_change_high = 0;  // 95 % interval of that median
    double bytes_change = 0;                           // likewise of the activations
  };
  std::string preset, dtype;
  int64_t rounds = 0, layers = 0, batch_size = 0, context = 0;
  std::vector<Row> rows;  // the first keeps everything
};
CheckpointingBench bench_checkpointing(const RunConfig& config, int64_t rounds);

}  // namespace ingot
