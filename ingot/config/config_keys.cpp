#include "ingot/config/config_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "ingot/config/config_key_kinds.h"
#include "ingot/config/config_keys_schedule.h"
#include "ingot/config/known_names.h"
#include "ingot/config/nearest.h"
#include "ingot/config/optimizer_keys.h"

namespace ingot {
namespace {

using enum ResumeClass;

using key_kinds::choice;
using key_kinds::choices;
using key_kinds::duration;
using key_kinds::flag;
using key_kinds::kMany;
using key_kinds::number;
using key_kinds::numbers;
using key_kinds::or_auto;
using key_kinds::text;
using key_kinds::texts;
using key_kinds::whole;
using R = RunConfig;

void add_data_keys(std::vector<ConfigKey>& keys) {
  using D = DataConfig;
  const auto data = &R::data;
  keys.push_back(texts("data.train", kSource,
                       "files, folders, globs, .jsonl (text or chat), .bin shards, a prepared folder, "
                       "builtin:bible, builtin:cpp-headers",
                       data, &D::train));
  keys.push_back(
      numbers("data.mix", kText,
              "weights of the entries of data.train, in the same order; empty: one text, one after the other",
              data, &D::mix));
  keys.push_back(texts("data.val", kSource,
                       "validation data, in the same forms; empty: the last val_fraction of train", data,
                       &D::val));
  keys.push_back(texts("data.val_sets", kFree,
                       "further validation texts, each with a curve of its own: NAME=PATH", data,
                       &D::val_sets));
  keys.push_back(number("data.val_fraction", kSource, "fraction of train held out for validation, in [0, 1)",
                        data, &D::val_fraction));
  keys.push_back(text("data.text_field", kSource, "the field of a JSONL line that holds the text", data,
                      &D::text_field));
  keys.push_back(text("data.tokenizer", kText,
                      "char, byte, bpe (trained on the train text) or a tokenizer's file", data,
                      &D::tokenizer));
  keys.push_back(whole("data.tokenizer_vocab", kText, 257, 1 << 24, "vocabulary size of a trained bpe", data,
                       &D::tokenizer_vocab));
  keys.push_back(text("data.tokenizer_pattern", kText,
                      "how a trained bpe splits text: gpt2, cl100k, o200k, llama3, qwen2 or a regex", data,
                      &D::tokenizer_pattern));
  keys.push_back(choice<SampleOrder>(
      "data.order", kText, {{"random", SampleOrder::kRandom}, {"epochs", SampleOrder::kEpochs}},
      "random: independent windows; epochs: every window once per epoch", data, &D::order));
  keys.push_back(flag("data.document_mask", kCourse, "mask attention across document boundaries", data,
                      &D::has_document_mask));
  keys.push_back(flag("data.special", kText,
                      "text that spells a special token, such as <|im_end|>, becomes this token", data,
                      &D::finds_special));
  keys.push_back(
      text("data.chat_template", kText,
           "of chat data: chatml, llama3, zephyr or another known name; empty: the tokenizer's own", data,
           &D::chat_template));
  keys.push_back(choice<LossOn>(
      "data.loss_on", kText, {{"assistant", LossOn::kAssistant}, {"all", LossOn::kAll}},
      "of chat data: the loss counts the assistant's turns, or all tokens", data, &D::loss_on));
  keys.push_back(whole("data.workers", kFree, 0, 1024,
                       "threads that make batches ahead of training; 0: training waits for each batch", data,
                       &D::workers));
  keys.push_back(whole("data.prefetch", kFree, 1, 4096, "batches that are made ahead for each worker", data,
                       &D::prefetch));
}

void add_train_keys(std::vector<ConfigKey>& keys) {
  using T = TrainConfig;
  const auto train = &R::train;
  keys.push_back(whole("train.steps", kCourse, 1, kMany, "optimizer steps", train, &T::steps));
  keys.push_back(whole("train.stop_at", kFree, 0, kMany, "stop after this step, schedule unchanged; 0: off",
                       train, &T::stop_at));
  keys.push_back(
      duration("train.max_time", kCourse, "time budget in place of steps; 0s: off", train, &T::max_time_s));
  keys.push_back(whole("train.max_tokens", kCourse, 0, kMany * 1024, "token budget in place of steps; 0: off",
                       train, &T::max_tokens));
  keys.push_back(number("train.epochs", kCourse,
                        "passes over the data in place of steps, which are set from them; 0: off", train,
                        &T::epochs));
  keys.push_back(
      whole("train.batch_size", kText, 1, 1 << 24, "sequences per micro-batch", train, &T::batch_size));
  keys.push_back(
      whole("train.grad_accum", kText, 1, 1 << 24, "micro-batches per step", train, &T::grad_accum));
  add_batch_ramp_key(keys);
  keys.push_back(whole("train.seed", kText, 0, std::numeric_limits<int64_t>::max(),
                       "seed for initialisation, data order, dropout and sampling", train, &T::seed));
  keys.push_back(
      whole("train.log_every", kFree, 1, kMany, "steps between lines on the console", train, &T::log_every));
  keys.push_back(whole("train.stats_every", kFree, 0, kMany,
                       "steps between records of every parameter's norms in params.jsonl; 0: never", train,
                       &T::stats_every));
  keys.push_back(whole("train.threads", kFree, 0, 4096, "compute threads; 0: all cores", train, &T::threads));
  keys.push_back(flag("train.overcommit", kFree, "start even if the run needs more memory than there is",
                      train, &T::is_overcommitted));
  keys.push_back(choice<Device>("train.device", kFree, {{"cpu", Device::kCpu}, {"cuda", Device::kCuda}},
                                "device that trains the model", train, &T::device));
  keys.push_back(text("train.init_from", kFree,
                      "start from the model and tokenizer of this folder of Hugging Face or checkpoint of "
                      "Ingot; empty: random weights",
                      train, &T::init_from));
  keys.push_back(flag("train.graph", kFree, "on a GPU: run each micro-batch and each update as a CUDA graph",
                      train, &T::has_graph));
  keys.push_back(flag("train.noise_scale", kFree,
                      "estimate the gradient noise scale (the metric noise_scale); costs a pass over the "
                      "gradients per step",
                      train, &T::has_noise_scale));
  keys.push_back(flag("train.deterministic", kFree,
                      "on a GPU: bit-exact repeatability, even where it is slower", train,
                      &T::is_deterministic));
}

void add_precision_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(choice<DType>(
      "precision.compute", kCourse, {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
      "dtype of products and activations", &R::precision, &PrecisionConfig::compute));
  keys.push_back(flag("precision.tf32", kFree, "on a GPU: products of f32 round their operands to tf32",
                      &R::precision, &PrecisionConfig::allows_tf32));
  keys.push_back(choice<Masters>(
      "precision.master", kCourse,
      {{"f32", Masters::kF32}, {"bf16_stochastic", Masters::kNone}, {"bf16_tail", Masters::kTail}},
      "master weights of bf16 matrices: f32; none, with stochastic rounding; or 16 more bits, as exact as "
      "f32",
      &R::precision, &PrecisionConfig::master));
}

void add_activation_keys(std::vector<ConfigKey>& keys) {
  using A = RecomputeConfig;
  using Policy = RecomputePolicy;
  using Part = RecomputePart;
  const auto activations = &R::activations;
  keys.push_back(choice<Policy>(
      "activations.policy", kFree,
      {{"none", Policy::kNone},
       {"selective", Policy::kSelective},
       {"block", Policy::kBlock},
       {"every_k", Policy::kEveryK},
       {"sqrt", Policy::kSqrt},
       {"auto", Policy::kAuto}},
      "activation checkpointing: none, selective, block, every_k, sqrt, or auto "
      "(the cheapest that fits activations.budget; on a device without one, as much as its memory holds)",
      activations, &A::policy));
  keys.push_back(choices<Part>("activations.parts", kFree,
                               {{"norms", Part::kNorms},
                                {"activation", Part::kActivation},
                                {"mlp", Part::kMlp},
                                {"attention", Part::kAttention},
                                {"embedding", Part::kEmbedding}},
                               "selective: what each block recomputes: norm outputs, the activation's "
                               "output, everything before W_down or "
                               "W_o; and the embedding's output",
                               activations, &A::parts));
  keys.push_back(whole("activations.k", kFree, 1, 10'000, "every_k: keep the input of every k-th block",
                       activations, &A::k));
  keys.push_back(whole("activations.budget", kFree, 0, kMany, "auto: bytes that activations may take",
                       activations, &A::budget_bytes));
}

void add_rhythm_keys(std::vector<ConfigKey>& keys) {
  using S = SamplesConfig;
  const auto sample = &R::sample;
  keys.push_back(whole("eval.every", kFree, 0, kMany, "steps between evaluations; 0: only at the end",
                       &R::eval, &EvalConfig::every));
  keys.push_back(or_auto(
      whole("eval.max_tokens", kFree, 0, kMany,
            "validation tokens per evaluation; 0: all; auto: at most a tenth of the training time so far",
            &R::eval, &EvalConfig::max_tokens),
      &R::eval, &EvalConfig::max_tokens));
  keys.push_back(texts("eval.tasks", kFree,
                       "files of questions with answers that each evaluation scores (docs/tasks.md)",
                       &R::eval, &EvalConfig::tasks));
  keys.push_back(whole("eval.task_questions", kFree, 0, kMany,
                       "questions of each task in an evaluation, the first ones; 0: all", &R::eval,
                       &EvalConfig::task_questions));
  keys.push_back(text("eval.best_by", kFree,
                      "the text whose loss decides which checkpoint is the best: a name of data.val_sets, or "
                      "an entry of data.train in a mixture; empty: the validation text",
                      &R::eval, &EvalConfig::best_by));
  keys.push_back(whole("eval.patience", kFree, 0, kMany,
                       "end the run after so many evaluations without a lower loss; 0: never", &R::eval,
                       &EvalConfig::patience));
  keys.push_back(whole("checkpoint.every", kFree, 0, kMany,
                       "steps between checkpoints; 0: by checkpoint.every_minutes and at the end",
                       &R::checkpoint, &CheckpointConfig::every));
  keys.push_back(number("checkpoint.every_minutes", kFree,
                        "minutes between checkpoints, in addition to checkpoint.every; 0: off, as "
                        "it is if the guard rolls back",
                        &R::checkpoint, &CheckpointConfig::every_minutes));
  keys.push_back(
      flag("checkpoint.at_start", kFree,
           "save the state before the first step too, so that a run can be resumed whenever it dies",
           &R::checkpoint, &CheckpointConfig::is_made_at_start));
  keys.push_back(
      flag("checkpoint.async", kFree,
           "copy the state and write it while training goes on; false, or too little memory: training waits",
           &R::checkpoint, &CheckpointConfig::is_async));
  keys.push_back(whole("checkpoint.keep", kFree, 1, 1 << 20, "newest checkpoints kept", &R::checkpoint,
                       &CheckpointConfig::keep));
  keys.push_back(
      flag("checkpoint.best", kFree,
           "save whenever the validation loss improves, and keep that checkpoint as checkpoints/best",
           &R::checkpoint, &CheckpointConfig::keeps_best));
  keys.push_back(
      whole("sample.every", kFree, 0, kMany, "steps between samples; 0: only at the end", sample, &S::every));
  keys.push_back(whole("sample.count", kFree, 0, 1 << 16, "samples generated each time", sample, &S::count));
  keys.push_back(whole("sample.tokens", kFree, 1, 1 << 24, "tokens per sample", sample, &S::tokens));
  keys.push_back(number("sample.temperature", kFree, "sampling temperature; 0: always the likeliest token",
                        sample, &S::temperature));
  keys.push_back(whole("sample.top_k", kFree, 0, 1 << 24, "sample from the k likeliest tokens; 0: all",
                       sample, &S::top_k));
  keys.push_back(number("sample.top_p", kFree, "sample from the likeliest tokens of this total probability",
                        sample, &S::top_p));
  keys.push_back(texts("sample.prompts", kFree,
                       "prompts of the samples; empty: end of text, a newline, or the first token", sample,
                       &S::prompts));
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    key_kinds::add_model_keys(all);
    add_data_keys(all);
    add_train_keys(all);
    add_optimizer_keys(all);
    add_schedule_keys(all);
    add_precision_keys(all);
    key_kinds::add_loss_scale_keys(all);
    key_kinds::add_fp8_keys(all);
    add_activation_keys(all);
    add_guard_keys(all);
    key_kinds::add_head_keys(all);
    add_rhythm_keys(all);
    key_kinds::add_parallel_keys(all);
    key_kinds::add_scaling_keys(all);
    return all;
  }();
  return keys;
}

const ConfigKey* find_config_key(std::string_view name) {
  const auto& keys = config_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string> nearest_config_keys(std::string_view name) {
  const size_t dot = name.find('.');
  const std::string_view leaf = dot == std::string_view::npos ? name : name.substr(dot + 1);
  for (const std::string_view other : {name, leaf})
    if (std::vector<std::string> known = keys_known_as(other); !known.empty()) return known;
  std::vector<std::string> names{"preset", "base", std::string(kOptimizerGroup)};
  for (const ConfigKey& key : config_keys()) names.push_back(key.name);
  std::vector<std::string> nearest = nearest_names(name, names);
  const std::string_view section = name.substr(0, dot == std::string_view::npos ? 0 : dot);
  std::stable_partition(nearest.begin(), nearest.end(),
                        [&](const std::string& k) { return k.starts_with(section); });
  if (!nearest.empty() && edit_distance(name, nearest.front()) == 1) return nearest;

  // The right name in the wrong section, or without a section, is more likely than two typing errors.
  std::vector<std::string> elsewhere;
  for (const ConfigKey& key : config_keys())
    if (key.leaf() == leaf) elsewhere.push_back(key.name);
  if (!elsewhere.empty()) return elsewhere;
  if (!nearest.empty() || leaf.empty()) return nearest;
  std::vector<std::string> leaves;
  for (const ConfigKey& key : config_keys()) leaves.emplace_back(key.leaf());
  const std::vector<std::string> near_leaves = nearest_names(leaf, leaves);
  for (const ConfigKey& key : config_keys())
    if (std::find(near_leaves.begin(), near_leaves.end(), key.leaf()) != near_leaves.end())
      nearest.push_back(key.name);
  if (nearest.size() > 3) nearest.resize(3);
  return nearest;
}

std::string unknown_key_hint(std::string_view name) {
  const std::vector<std::string> nearest = nearest_config_keys(name);
  const bool is_typo = !nearest.empty() && edit_distance(name, nearest.front()) == 1;
  const size_t dot = name.find('.');  // npos + 1 is 0
  for (const std::string_view part : {name.substr(dot + 1), name.substr(0, dot)})
    if (const std::string_view answer = answer_about(part); !answer.empty())
      return is_typo ? fmt::format("{} {}", did_you_mean(nearest), answer) : fmt::format("; {}", answer);
  return did_you_mean(nearest);
}

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += fmt::format("\\u{:04X}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace ingot
