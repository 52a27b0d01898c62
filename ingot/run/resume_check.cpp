#include "ingot/run/resume_check.h"

#include <algorithm>
#include <utility>

#include "ingot/checkpoint/fp8_history.h"
#include "ingot/checkpoint/rank_tensors.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/optimizer_keys.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/safetensors.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using enum ResumeClass;

bool is_batch_key(std::string_view key) {
  return key == "train.batch_size" || key == "train.grad_accum" || key == "train.batch_ramp";
}

// Returns true if every step has the same number of sequences; other micro-batches of them do not change
// the text.
bool has_same_batches(const TrainConfig& a, const TrainConfig& b) {
  const auto is_same_stage = [&](const BatchStage& x, const BatchStage& y) {
    return x.micro_batches * a.batch_size == y.micro_batches * b.batch_size &&
           x.until_tokens == y.until_tokens;
  };
  return a.batch_size * a.grad_accum == b.batch_size * b.grad_accum &&
         std::ranges::equal(a.batch_ramp, b.batch_ramp, is_same_stage);
}

// Returns the configuration with defaults in place of the values 0.
RunConfig resolved(RunConfig config, int64_t vocab) {
  if (config.model.vocab == 0) config.model.vocab = vocab;
  if (config.model.vocab > 0) config.model = config.model.resolved();
  return config;
}

std::string one_line(std::string text) {
  constexpr size_t kMax = 200;
  while (text.starts_with('\n')) text.erase(0, 1);
  while (text.ends_with('\n')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  if (text.size() > kMax) text = text.substr(0, kMax) + " ...";
  return text;
}

RunConfig read_config(const fs::path& path) {
  ConfigBuilder builder;
  builder.add_toml(read_file(path), path.string());
  return builder.build();
}

// Sets the keys that a checkpoint leaves out of its config.toml, from the run's configuration, or from
// `now` if that cannot be read.
void add_layout(RunConfig& before, const std::optional<fs::path>& run_config, const RunConfig& now) {
  RunConfig run = now;
  try {
    if (run_config) run = read_config(*run_config);
  } catch (const Error&) {
    run = now;
  }
  before.parallel = run.parallel;
  before.train.device = run.train.device;
  before.train.has_graph = run.train.has_graph;
  before.precision.allows_tf32 = run.precision.allows_tf32;
  before.train.stop_at = now.train.stop_at;  // it ended the previous part of the run, not this one
}

// Returns whether the tokenizer that a configuration names equals the one in tokenizer.json.
bool is_same_tokenizer(const DataConfig& data, const fs::path& tokenizer_json) {
  if (data.tokenizer == "bpe" || data.tokenizer == "char") return false;  // trained on the text
  const auto tokenizer = data.tokenizer == "byte" ? make_byte_tokenizer() : load_tokenizer(data.tokenizer);
  return tokenizer->to_json() == read_file(tokenizer_json);
}

bool has_states(const SafetensorsFile& file, const Optimizer& optimizer) {
  const std::vector<SafetensorsSource> wanted = optimizer_tensors(optimizer);
  const auto is_there = [&](const SafetensorsSource& tensor) {
    const SafetensorsEntry* entry = file.find(tensor.name);
    return entry && entry->dtype == tensor.dtype && entry->shape == tensor.shape;
  };
  return wanted.size() == file.tensors().size() && std::ranges::all_of(wanted, is_there);
}

}  // namespace

std::vector<ResumeChange> resume_changes(const RunConfig& before, const RunConfig& now) {
  const RunConfig a = resolved(before, before.model.vocab), b = resolved(now, before.model.vocab);
  std::vector<ResumeChange> changes;
  const auto compare = [&](const std::string& key, ResumeClass what, const std::string& old_value,
                           const std::string& new_value) {
    if (old_value != new_value) changes.push_back({key, one_line(old_value), one_line(new_value), what});
  };
  for (const ConfigKey& key : config_keys())
    if (key.toml(before) != key.toml(now)) compare(key.name, key.resume, key.toml(a), key.toml(b));
  compare(std::string(kOptimizerGroup), kState, optimizer_groups_toml(a.optimizer),
          optimizer_groups_toml(b.optimizer));

  const bool has_batches = has_same_batches(a.train, b.train);
  const bool has_table = a.model.positions == PositionKind::kLearned;
  const bool trains_bpe = a.data.tokenizer == "bpe" || b.data.tokenizer == "bpe";
  for (ResumeChange& change : changes) {
    if (has_batches && is_batch_key(change.key)) change.what = kCourse;
    if (has_table && change.key == "model.context") change.what = kModel;
    if (!trains_bpe && change.key.starts_with("data.tokenizer_")) change.what = kFree;
  }
  return changes;
}

ResumeCheck::ResumeCheck(const fs::path& checkpoint, const std::optional<fs::path>& run_config,
                         const RunConfig& now, DataMismatch data_mismatch)
    : checkpoint_(checkpoint),
      before_(read_config(checkpoint / "config.toml")),
      data_mismatch_(data_mismatch) {
  add_layout(before_, run_config, now);
  vocab_ = before_.model.vocab;
  changes_ = resume_changes(before_, now);
  refuse_model();
  settle_text(now);
}

// Lists the changes of one class: "model.width 32 -> 48, model.layers 2 -> 3".
std::string ResumeCheck::list(ResumeClass what) const {
  std::string text;
  for (const ResumeChange& change : changes_)
    if (change.what == what)
      text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", change.key, change.before, change.now);
  return text;
}

void ResumeCheck::refuse_model() const {
  const std::string keys = list(kModel);
  if (!keys.empty())
    fail(ErrorKind::kUsage,
         "{}: these keys say what the model is and cannot change when a run is resumed: {}; leave them as "
         "they were, "
         "or start a new run",
         checkpoint_.string(), keys);
}

void ResumeCheck::settle_text(const RunConfig& now) {
  const auto tokenizer = std::ranges::find(changes_, "data.tokenizer", &ResumeChange::key);
  if (tokenizer != changes_.end() && is_same_tokenizer(now.data, checkpoint_ / "tokenizer.json"))
    tokenizer->what = kFree;
  const std::string keys = list(kText);
  if (!keys.empty() && data_mismatch_ == DataMismatch::kRefused)
    fail(ErrorKind::kUsage,
         "{}: these keys change which text comes next, so that the run would not go on where it stopped: {}; "
         "leave "
         "them as they were, or say --resume-anyway",
         checkpoint_.string(), keys);
  for (const ResumeChange& change : changes_)
    if (change.what == kText && change.key.starts_with("data.tokenizer")) keeps_tokenizer_ = false;
}

RunConfig ResumeCheck::with_vocab(RunConfig now, const Tokenizer& tokenizer) const {
  if (now.model.vocab == 0) now.model.vocab = vocab_;
  if (tokenizer.vocab_size() > now.model.vocab)
    fail(ErrorKind::kUsage,
         "{}: data.tokenizer has {} tokens, and the model has {} (model.vocab), which cannot change when a "
         "run is "
         "resumed; choose a tokenizer with as many tokens or fewer",
         checkpoint_.string(), tokenizer.vocab_size(), now.model.vocab);
  return now;
}

void ResumeCheck::require_state(Trainer& trainer) const {
  const std::string keys = list(kState);
  if (keys.empty()) return;  // if the file is damaged, the loader names the tensor
  const bool fits =
      has_states(SafetensorsFile(checkpoint_ / "optimizer.safetensors"), trainer.state().optimizer) &&
      has_fp8_history(checkpoint_ / "fp8.safetensors", trainer.state().fp8);
  if (!fits)
    fail(ErrorKind::kUsage,
         "{}: what the optimizer (or FP8) remembers in it does not fit the configuration: {}; leave these "
         "keys as "
         "they were, or start a new run",
         checkpoint_.string(), keys);
}

void ResumeCheck::require_text(const TextHashes& before, const TextHashes& now) {
  std::string what;
  const auto compare = [&](const char* key, uint64_t old_hash, uint64_t new_hash) {
    if (old_hash == new_hash) return;
    ResumeChange change{key, fmt::format("tokens of hash {:016x}", old_hash),
                        fmt::format("{:016x}", new_hash), kText};
    what += fmt::format("{}{} {} -> {}", what.empty() ? "" : ", ", change.key, change.before, change.now);
    changes_.push_back(std::move(change));
  };
  compare("data.train", before.train, now.train);
  if (before.val && now.val) compare("data.val", *before.val, *now.val);
  if (what.empty() || data_mismatch_ == DataMismatch::kAccepted) return;
  const std::string keys = list(kSource);
  fail(ErrorKind::kUsage,
       "{}: the text is not the one that the run was trained and evaluated on: {}{}{}; give the same text, "
       "or say "
       "--resume-anyway",
       checkpoint_.string(), what, keys.empty() ? "" : "; changed keys: ", keys);
}

std::string ResumeCheck::text() const {
  std::string text;
  for (const ResumeChange& change : changes_)
    text += fmt::format("\n  {:<24} {} -> {}{}", change.key, change.before, change.now,
                        change.what == kText ? "  (other text comes next)" : "");
  return text.empty() ? text : "changed since the checkpoint was saved:" + text;
}

}  // namespace ingot
