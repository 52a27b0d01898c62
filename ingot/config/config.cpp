#include "ingot/config/config.h"

#include <algorithm>
#include <cmath>

#include "ingot/config/data_shard.h"
#include "ingot/config/device_support.h"
#include "ingot/config/nearest.h"
#include "ingot/config/run_plan.h"
#include "ingot/core/error.h"
#include "ingot/data/mix_order.h"

namespace ingot {

NamedText named_text(const std::string& entry) {
  const size_t sign = entry.find('=');
  const std::string name = entry.substr(0, sign);
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (sign == std::string::npos || sign == 0 || sign + 1 == entry.size() ||
      !std::ranges::all_of(name, is_plain))
    fail(ErrorKind::kUsage,
         "data.val_sets must hold NAME=PATH, with a name of letters, digits, '.', '_' and '-', got \"{}\"",
         entry);
  return {.name = name, .path = entry.substr(sign + 1)};
}

namespace {

void validate_data(const DataConfig& data, int64_t vocab) {
  if (!(data.val_fraction >= 0 && data.val_fraction < 1))
    fail(ErrorKind::kUsage, "data.val_fraction must lie in [0, 1), got {}", data.val_fraction);
  if (!data.mix.empty() && !data.train.empty()) {
    if (data.mix.size() != data.train.size())
      fail(ErrorKind::kUsage,
           "data.mix must have one weight for each entry of data.train, got {} for {} (a pattern or a folder "
           "is one entry; "
           "the shell makes several of a pattern that is not in quotes)",
           data.mix.size(), data.train.size());
    try {
      MixOrder{data.mix};
    } catch (const Error& error) {
      fail(error.kind(), "data.mix: {}", error.what());
    }
  }
  if (data.tokenizer.empty())
    fail(ErrorKind::kUsage, "data.tokenizer must be char, byte, bpe or a tokenizer's file, got nothing");
  // A trained bpe may have fewer tokens than requested, so it is checked once it is trained.
  const int64_t needed = data.tokenizer == "byte" ? 256 : 0;
  if (vocab > 0 && vocab < needed)
    fail(
        ErrorKind::kUsage,
        "model.vocab = {} must hold the {} tokens of data.tokenizer = \"{}\"; the nearest valid value is {}, "
        "and 0 follows the tokenizer",
        vocab, needed, data.tokenizer, needed);
}

void validate_length(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const ScheduleConfig& schedule = config.schedule;
  if (train.max_time_s > 0 && train.max_tokens > 0)
    fail(ErrorKind::kUsage, "train.max_time and train.max_tokens = {} are both set; unset one",
         train.max_tokens);
  if (!(train.epochs >= 0 && train.epochs <= 1e6))
    fail(ErrorKind::kUsage, "train.epochs must be from 0 to 1e6, got {}", train.epochs);
  if (train.epochs > 0 && (train.max_time_s > 0 || train.max_tokens > 0))
    fail(ErrorKind::kUsage, "train.epochs = {} and {} are both set; unset one", train.epochs,
         train.max_time_s > 0 ? "train.max_time" : "train.max_tokens");
  if (train.epochs > 0 && !config.data.mix.empty())
    fail(ErrorKind::kUsage,
         "train.epochs = {} needs one text, and data.mix has several, each with epochs of its own; set "
         "train.steps or train.max_tokens",
         train.epochs);
  if (train.epochs > 0 && config.scaling.tokens_rule != TokensRule::kNone && !config.scaling.base.empty())
    fail(ErrorKind::kUsage,
         "scaling.tokens_rule needs the tokens of the run before its text is read; set train.max_tokens in "
         "place of train.epochs = {}",
         train.epochs);
  const bool counts_steps = train.max_time_s == 0 && train.max_tokens == 0 && train.epochs == 0;
  if (counts_steps && train.stop_at > train.steps)
    fail(ErrorKind::kUsage, "train.stop_at must be at most train.steps = {}, got {}; 0 does not stop early",
         train.steps, train.stop_at);
  if (train.max_time_s > 0 && train.stop_at > 0)
    fail(ErrorKind::kUsage, "train.stop_at needs a number of steps, and train.max_time is set; unset one");
  const int64_t end = schedule.decay_steps > 0 ? schedule.decay_steps : train.steps;
  if (counts_steps && schedule.warmup_steps > end)
    fail(ErrorKind::kUsage,
         "schedule.warmup_steps must be at most {} = {}, got {}; the nearest valid value is {}",
         schedule.decay_steps > 0 ? "schedule.decay_steps" : "train.steps", end, schedule.warmup_steps, end);
  if (config.guard.non_finite == GuardPolicy::kRollback && config.checkpoint.every == 0)
    fail(ErrorKind::kUsage,
         "guard.non_finite = \"rollback\" needs checkpoints to roll back to; set checkpoint.every");
  if (config.guard.spike == GuardPolicy::kRollback && config.checkpoint.every == 0)
    fail(ErrorKind::kUsage,
         "guard.spike = \"rollback\" needs checkpoints to roll back to; set checkpoint.every");
}

void validate_evaluation(const RunConfig& config) {
  std::vector<std::string> names;
  for (const std::string& entry : config.data.val_sets) {
    const std::string name = named_text(entry).name;
    if (std::ranges::count(names, name) + std::ranges::count(config.data.train, name) > 0)
      fail(ErrorKind::kUsage, "data.val_sets: \"{}\" is the name of two texts; rename one", name);
    names.push_back(name);
  }
  if (!config.data.mix.empty() && config.data.val.empty())
    names.insert(names.end(), config.data.train.begin(), config.data.train.end());
  if (config.eval.patience > 0 && config.eval.every == 0)
    fail(ErrorKind::kUsage, "eval.patience counts the evaluations of eval.every, which is 0; set eval.every");
  const std::string& wanted = config.eval.best_by;
  if (!wanted.empty() && std::ranges::count(names, wanted) == 0)
    fail(ErrorKind::kUsage, "eval.best_by: no validation text is called \"{}\"; {}", wanted,
         names.empty() ? "name one in data.val_sets" : "the names are " + list_names(names));
}

void validate_samples(const SamplesConfig& sample) {
  // Both are used as f32.
  if (!(sample.temperature >= 0 && std::isfinite(static_cast<float>(sample.temperature))))
    fail(ErrorKind::kUsage, "sample.temperature must be from 0 to 3.4e38, got {}", sample.temperature);
  if (!(static_cast<float>(sample.top_p) > 0 && sample.top_p <= 1))
    fail(ErrorKind::kUsage, "sample.top_p must lie in (0, 1] and be at least 1.5e-45, got {}", sample.top_p);
}

void validate_checkpoints(const CheckpointConfig& checkpoint) {
  if (checkpoint.keep < 1)
    fail(ErrorKind::kUsage, "checkpoint.keep must be at least 1, got {}", checkpoint.keep);
  if (!(checkpoint.every_minutes >= 0))
    fail(ErrorKind::kUsage, "checkpoint.every_minutes must not be negative, got {}; 0 turns it off",
         checkpoint.every_minutes);
}

void validate_precision(const RunConfig& config) {
  const PrecisionConfig& precision = config.precision;
  if (precision.allows_tf32 && config.train.device != Device::kCuda)
    fail(ErrorKind::kUsage, "precision.tf32 = true is for train.device = cuda; no processor has tf32");
  if (precision.compute != DType::f32 && precision.compute != DType::bf16 && precision.compute != DType::f16)
    fail(ErrorKind::kUsage, "precision.compute must be f32, bf16 or f16");
  if (precision.loss_scale.constant && precision.compute != DType::f16)
    fail(ErrorKind::kUsage,
         "precision.loss_scale = {} is for precision.compute = f16; {} has the exponents of f32 and needs "
         "none",
         *precision.loss_scale.constant, name(precision.compute));
  if (precision.master != Masters::kF32 && precision.compute != DType::bf16)
    fail(ErrorKind::kUsage,
         "precision.master must be f32 with precision.compute = {}; the others keep bf16 weights",
         name(precision.compute));
}

// No rank takes this many tokens at a time, so such a batch is counted in tokens by mistake.
void validate_batch(const RunConfig& config) {
  constexpr int64_t kMaxTokens = int64_t{1} << 26;
  const int64_t batch = config.train.batch_size, context = config.model.context;
  const int64_t ranks = std::max<int64_t>(1, config.parallel.dp * config.parallel.fsdp);
  if (batch / ranks <= kMaxTokens / context) return;
  const int64_t sequences = std::max<int64_t>(1, batch / context), size = sequences % 4 == 0 ? 4 : 1;
  fail(ErrorKind::kUsage,
       "train.batch_size = {} counts sequences of {} tokens, which are {:.3g} tokens at a time; a step of {} "
       "tokens is "
       "train.batch_size={} train.grad_accum={}",
       batch, context, static_cast<double>(batch) * static_cast<double>(context), sequences * context, size,
       sequences / size);
}

void validate_head(const RunConfig& config) {
  const HeadConfig& head = config.head;
  const PrecisionConfig& precision = config.precision;
  if (precision.master != Masters::kF32 && head.precision == HeadPrecision::kF32)
    fail(ErrorKind::kUsage, "head.precision = f32 reads f32 masters, which precision.master does not keep");
  const bool is_bf16_head = head.precision == HeadPrecision::kBf16 ||
                            (head.precision == HeadPrecision::kCompute && precision.compute == DType::bf16);
  if (head.loss_dtype != LossDtype::kF32 && !is_bf16_head)
    fail(ErrorKind::kUsage,
         "head.loss_dtype = \"bf16\" and \"bf16_logits\" are for a head in bf16; set "
         "head.precision = bf16, or head.loss_dtype = f32");
  if (head.loss_dtype != LossDtype::kF32 && config.parallel.tp > 1)
    fail(ErrorKind::kUsage, "head.loss_dtype must be f32 with parallel.tp above 1");
  if (head.loss_dtype == LossDtype::kBf16 && config.model.cap.kind != LogitCap::kNone)
    fail(ErrorKind::kUsage, "head.loss_dtype = \"bf16\" knows no logit cap; set model.cap = none");
}

void validate_noise_scale(const RunConfig& config) {
  if (!config.train.has_noise_scale) return;
  const auto refuse = [](std::string_view rule) {
    fail(ErrorKind::kUsage, "train.noise_scale = true {}", rule);
  };
  if (config.train.device != Device::kCpu)
    refuse("needs train.device = cpu: on a GPU no step waits for a norm");
  if (config.parallel.fsdp > 1 || config.parallel.pp > 1)
    refuse(
        "needs parallel.fsdp = 1 and parallel.pp = 1: other ranks would sum a micro-batch's gradient before "
        "its norm is taken");
  if (DataShard::of(config.train, config.parallel.dp, 0).micros(config.train.grad_accum) < 2)
    refuse("compares one micro-batch with a step, so each rank needs 2 or more; raise train.grad_accum");
}

void validate_dpo(const RunConfig& config) {
  const HeadConfig& head = config.head;
  if (head.dpo_beta == 0) return;
  const auto require = [&](bool holds, std::string_view rule) {
    if (!holds) fail(ErrorKind::kUsage, "dpo.beta = {} needs {}", head.dpo_beta, rule);
  };
  require(config.train.device == Device::kCpu, "train.device = cpu: its loss has no kernels yet");
  require(config.parallel.pp == 1, "parallel.pp = 1: a stage of a pipeline gets no reference");
  require(head.precision != HeadPrecision::kFp8, "head.precision other than fp8");
  require(head.z_loss == 0 && head.label_smoothing == 0 && head.filter == 0,
          "head.z_loss, head.label_smoothing and head.filter = 0");
  require(config.model.dropout == 0, "model.dropout = 0: the reference is computed without");
  require(config.data.mix.empty(), "one text in place of data.mix");
}

void validate_lora(const RunConfig& config) {
  const LoraConfig& lora = config.model.lora;
  if (lora.rank == 0) {
    if (lora.targets.empty()) return;
    fail(ErrorKind::kUsage, "lora.targets needs lora.rank, such as 16");
  }
  if (!(lora.alpha > 0)) fail(ErrorKind::kUsage, "lora.alpha must be above 0, got {}", lora.alpha);
  if (config.train.init_from.empty())
    fail(ErrorKind::kUsage,
         "lora.rank = {} trains adapters of a model that is there already; set train.init_from (--init) to "
         "its "
         "folder",
         lora.rank);
  if (config.head.precision == HeadPrecision::kF32 && config.precision.compute != DType::f32)
    fail(ErrorKind::kUsage,
         "head.precision = f32 reads f32 masters, which the frozen weights of a LoRA run have not; set "
         "head.precision = {}",
         name(config.precision.compute));
}

}  // namespace

void RunConfig::validate() const {
  model.validate();
  optimizer.validate();
  schedule.validate();
  activations.validate(model.layers, train.device == Device::kCpu);
  head.validate();
  precision.fp8.validate();
  precision.loss_scale.validate();
  if (!schedule.window.empty() && model.window == 0)
    fail(
        ErrorKind::kUsage,
        "schedule.window needs model.window, the largest window, which evaluation of the trained model uses");
  validate_data(data, model.vocab);
  guard.validate();
  validate_length(*this);
  validate_evaluation(*this);
  validate_samples(sample);
  validate_checkpoints(checkpoint);
  parallel.validate();
  if (train.device == Device::kCuda) validate_on_cuda(*this);
  if (train.has_graph) validate_graph(*this);
  validate_precision(*this);
  validate_head(*this);
  validate_lora(*this);
  validate_dpo(*this);
  validate_noise_scale(*this);
  if (train.steps < 1 || train.batch_size < 1 || train.grad_accum < 1 || train.log_every < 1)
    fail(ErrorKind::kUsage, "train.steps, batch_size, grad_accum and log_every must be at least 1");
  validate_batch(*this);
  // Throws if the schedule or the batch ramp does not fit the run.
  static_cast<void>(RunPlan{*this});
  // Throws if the sequences of a step cannot be divided among the ranks.
  static_cast<void>(DataShard::of(train, parallel.dp * parallel.fsdp, 0));
}

}  // namespace ingot
