// RunConfig is the whole configuration of a run: plain data, one struct per section, and the only place
// with defaults. config_toml.h fills it from presets, files and --set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/guard_config.h"
#include "ingot/config/parallel_config.h"
#include "ingot/config/scaling.h"
#include "ingot/core/dtype.h"
#include "ingot/core/tensor.h"
#include "ingot/data/chat/conversation.h"
#include "ingot/data/sampler.h"
#include "ingot/nn/config.h"
#include "ingot/nn/fp8_linear.h"
#include "ingot/nn/loss_head.h"
#include "ingot/nn/param_store.h"
#include "ingot/nn/recompute.h"
#include "ingot/optim/loss_scaler.h"
#include "ingot/optim/optimizer_config.h"
#include "ingot/optim/schedule.h"

namespace ingot {

struct DataConfig {
  std::vector<std::string> train;     // files, folders, globs, .jsonl, .bin, a prepared folder, builtin:...
  std::vector<std::string> val;       // if empty: the last val_fraction of train
  std::vector<std::string> val_sets;  // NAME=PATH: further validation texts (named_text)
  std::vector<double> mix;            // weights of the entries of train; if empty, they are one text
  double val_fraction = 0.1;
  std::string text_field = "text";  // name of the text field in JSON Lines
  std::string tokenizer = "bpe";    // char | byte | bpe (trained on the train text) | a tokenizer file
  int64_t tokenizer_vocab = 4096;   // vocabulary size of a trained bpe
  std::string tokenizer_pattern = "cl100k";  // gpt2 | cl100k | o200k | llama3 | qwen2 | a regex
  SampleOrder order = SampleOrder::kRandom;
  bool has_document_mask = false;
  bool finds_special = false;           // Plain text that spells a special token becomes it.
  std::string chat_template;            // It renders chat data; empty: the tokenizer's own does.
  LossOn loss_on = LossOn::kAssistant;  // The loss on chat data counts these tokens.
  int64_t workers = 1;   // threads that make batches ahead of training; 0: training makes each one itself
  int64_t prefetch = 3;  // batches that are made ahead for each of them
};

// An entry of data.val_sets.
struct NamedText {
  std::string name, path;
};
// Throws a kUsage error if `entry` is not NAME=PATH with a name of letters, digits, '.', '_' and '-'.
NamedText named_text(const std::string& entry);

struct TrainConfig {
  int64_t steps = 1000;
  int64_t stop_at = 0;     // stop after this many steps, with the same schedule; 0: at `steps`
  double max_time_s = 0;   // time budget that replaces steps; the schedule follows the clock; 0: none
  int64_t max_tokens = 0;  // token budget that replaces steps; the schedule follows the tokens; 0: none
  double epochs = 0;       // passes over the data that replace steps, which the run sets from them; 0: none
  int64_t batch_size = 8;  // sequences per micro-batch
  int64_t grad_accum = 1;  // micro-batches per step
  std::vector<BatchStage> batch_ramp;  // smaller numbers of micro-batches at the start of the run
  uint64_t seed = 1337;
  int64_t log_every = 10;         // steps between console lines; metrics.jsonl has every step
  int64_t stats_every = 100;      // steps between the statistics of all parameters in params.jsonl; 0: never
  int64_t threads = 0;            // 0: all cores
  bool is_overcommitted = false;  // start even if the run will not fit into memory
  Device device = Device::kCpu;
  std::string init_from;          // folder whose weights a new run starts from; empty: random weights
  bool has_graph = false;         // GPU only: run the step as CUDA graphs
  bool has_noise_scale = false;   // train/noise_scale.h
  bool is_deterministic = false;  // GPU only; the CPU is always deterministic
};

struct PrecisionConfig {
  DType compute = DType::f32;        // f32, bf16 or f16
  bool allows_tf32 = false;          // GPU only: f32 matrix products use TF32
  Masters master = Masters::kF32;    // masters of bf16 matrices
  Fp8LinearConfig fp8 = {};          // for the blocks' linears during training
  LossScalerConfig loss_scale = {};  // used with f16
};

struct EvalConfig {
  static constexpr int64_t kTaskSlots = 8;  // questions of tasks that are scored at the same time

  int64_t every = 250;  // steps between evaluations; 0: only at the end
  // Validation tokens per evaluation; 0: all; nullopt: as many as cost at most a tenth of the training
  // time (run/eval/eval_tokens.h).
  std::optional<int64_t> max_tokens = {};
  // The text whose loss decides which checkpoint is the best: a name of data.val_sets, or a source of a
  // mixture; empty: the validation text.
  std::string best_by = {};
  std::vector<std::string> tasks = {};  // files of questions that each evaluation asks
  int64_t task_questions = 500;         // each evaluation asks the first ones of a task; 0: all
  int64_t patience = 0;  // evaluations without a lower loss of best_by that end the run; 0: never
};

struct CheckpointConfig {
  int64_t every = 0;              // steps between checkpoints; 0: only by time and at the end
  double every_minutes = 10;      // minutes since the last checkpoint; 0: only by steps and at the end
  int64_t keep = 2;               // number of newest checkpoints that are not deleted; at least 1
  bool keeps_best = true;         // save at every evaluation that improves, and never delete the best one
  bool is_made_at_start = false;  // save the state before the first step too
  bool is_async = true;           // copy the state and write it while training continues
  bool has_room = true;           // false if memory does not allow the copy; set at the start, not a key

  // Returns true if a run writes its checkpoints from a copy of the state, concurrently with its steps.
  bool copies_state() const { return is_async && has_room && (every > 0 || every_minutes > 0 || keeps_best); }
};

struct SamplesConfig {
  static constexpr int64_t kMaxSlots = 8;  // samples that are made at the same time

  int64_t every = 0;  // steps between samples; 0: only at the end
  int64_t count = 1;
  int64_t tokens = 128;
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: no limit
  double top_p = 1;
  std::vector<std::string> prompts;  // if empty: the end-of-text token, a newline, or the first token

  int64_t slots() const { return std::clamp<int64_t>(count, 1, kMaxSlots); }
};

struct RunConfig {
  std::string preset;  // name of the preset that the configuration started from, for information
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  GuardConfig guard;
  PrecisionConfig precision;
  RecomputeConfig activations;
  HeadConfig head;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  SamplesConfig sample;
  ParallelConfig parallel;
  ScalingConfig scaling;

  // Throws a kUsage error that names the key, the rule and the nearest valid value.
  void validate() const;
};

}  // namespace ingot
