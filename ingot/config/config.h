// The whole configuration of a run: plain data, one struct per owner, defaults only here. Files, presets and
// --set are bound to it in config_toml.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/guard_config.h"
#include "ingot/config/parallel_config.h"
#include "ingot/core/dtype.h"
#include "ingot/core/tensor.h"
#include "ingot/nn/config.h"
#include "ingot/nn/loss_head.h"
#include "ingot/nn/param_store.h"
#include "ingot/nn/recompute.h"
#include "ingot/optim/loss_scaler.h"
#include "ingot/optim/optimizer_config.h"
#include "ingot/optim/schedule.h"

namespace ingot {

struct DataConfig {
  std::vector<std::string> train;  // files, folders, globs, .bin shards, .jsonl, or "builtin:cpp-headers"
  std::vector<std::string> val;    // empty: the last val_fraction of train
  double val_fraction = 0.1;
  std::string text_field = "text";  // of JSONL
  std::string tokenizer = "bpe";    // char | byte | bpe (trained on the train text) | a tokenizer file
  int64_t tokenizer_vocab = 4096;   // of a trained BPE
  std::string tokenizer_pattern = "cl100k";  // pre-tokenisation of a trained BPE: gpt2 | cl100k | o200k
  std::string order = "random";  // random: independent windows; epochs: every window once per epoch
  bool has_document_mask = false;
};

struct TrainConfig {
  int64_t steps = 1000;
  int64_t stop_at = 0;     // stop early after this many steps, schedule unchanged; 0: at steps
  double max_time_s = 0;   // a time budget in place of steps; the schedule follows the clock; 0: none
  int64_t max_tokens = 0;  // a token budget in place of steps; the schedule follows the tokens; 0: none
  int64_t batch_size = 8;  // sequences per micro-batch
  int64_t grad_accum = 1;  // micro-batches per step
  std::vector<BatchStage> batch_ramp;  // fewer micro-batches at first
  uint64_t seed = 1337;
  int64_t log_every = 10;         // steps between lines on the console; metrics.jsonl has every step
  int64_t stats_every = 100;      // steps between lines about every parameter in params.jsonl; 0: never
  int64_t threads = 0;            // 0: all cores
  bool is_overcommitted = false;  // start although the run will not fit into memory
  Device device = Device::kCpu;
  bool has_graph = false;         // on a GPU
  bool is_deterministic = false;  // on a GPU; the CPU always is
};

struct PrecisionConfig {
  DType compute = DType::f32;        // f32, bf16 or f16
  bool allows_tf32 = false;          // in products of f32 on a GPU
  Masters master = Masters::kF32;    // behind bf16 matrices
  Fp8LinearConfig fp8 = {};          // of the blocks' linears, while training
  LossScalerConfig loss_scale = {};  // of f16
};

struct EvalConfig {
  int64_t every = 250;  // steps; 0: only at the end
  // Validation tokens per evaluation; 0: all; nullopt: as many as take a tenth of the training time at most
  // (run/eval_tokens.h).
  std::optional<int64_t> max_tokens = {};
};

struct CheckpointConfig {
  int64_t every = 0;          // steps; 0: by time and at the end only
  double every_minutes = 10;  // since the last one; 0: by steps and at the end only
  int64_t keep = 2;           // newest kept; at least 1
};

struct SamplesConfig {
  int64_t every = 0;  // steps; 0: only at the end
  int64_t count = 1;
  int64_t tokens = 128;
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: all
  double top_p = 1;
  std::vector<std::string> prompts;  // empty: the end-of-text token, or a newline
};

struct RunConfig {
  std::string preset;  // the name it started from, for the record
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

  // Throws a kUsage error that names the key, the rule and the nearest valid value.
  void validate() const;
};

}  // namespace ingot
