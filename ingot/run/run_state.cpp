#include "ingot/run/run_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/record/start_debris.h"
#include "ingot/run/resume_rate.h"

namespace ingot {

RunState::RunState(const RunConfig& given, RunFolder& run_folder, bool is_resume, Console& to,
                   const std::atomic<bool>& is_told_to_end, Mesh& mesh, OtherText other_text)
    : folder(run_folder),
      console(to),
      is_interrupted(is_told_to_end),
      world(*mesh.world),
      time_limit(world.time_limit()),
      store(folder.checkpoints()),
      resumed(find_resume_point(is_resume)),
      changes(check_changes(given, other_text)),
      data(load_data(given.data)),
      config(with_vocab(given)),
      trainer(config, parallelize(config, mesh)),
      sampler(sampler_of(config, data)),
      loader(data.train, sampler,
             {.shape = trainer.layout().batch_shape,
              .readers = trainer.layout().data_shard.ranks,
              .reader = trainer.layout().data_shard.rank,
              .workers = config.data.workers,
              .prefetch = config.data.prefetch}),
      plan(config),
      guard(config.guard),
      log(folder, resumed ? std::optional(resumed->step + 1) : std::nullopt) {
  complete_side_files();
  folder.record().inputs = hashes_of(data);
  saved.data_hash = text().train;
  saved.val_hash = text().val;
  check_data_of_ranks();
  if (resumed)
    resume();
  else
    start();
}

// Completes the tokenizer's side files from the folder of the checkpoint that the run resumes, or of the
// model that it starts from, if the tokenizer is the one in that folder.
void RunState::complete_side_files() {
  std::filesystem::path from;
  if (resumed && changes->keeps_tokenizer()) from = resumed->path;
  const std::filesystem::path start = std::filesystem::path(config.train.init_from) / "tokenizer.json";
  if (!resumed && path_exists(start) && load_tokenizer(start)->to_json() == data.tokenizer->to_json())
    from = config.train.init_from;
  if (from.empty()) return;
  TokenizerSideFiles side = data.tokenizer->side_files();
  side.fill_from(read_side_files(from));
  data.tokenizer->set_side_files(std::move(side));
}

// The hashes of this run's text.
TextHashes RunState::text() const {
  const RunInputs& inputs = *folder.record().inputs;
  return {.train = inputs.train_hash, .val = inputs.val_hash};
}

RunConfig RunState::with_vocab(const RunConfig& given) const {
  if (changes) return changes->with_vocab(given, *data.tokenizer);
  const int64_t wanted = data.tokenizer->vocab_size();
  if (given.model.vocab != 0 && given.model.vocab < wanted)
    fail(ErrorKind::kUsage, "model.vocab = {} is too small for the tokenizer's {} tokens; {}",
         given.model.vocab, wanted,
         given.train.init_from.empty() ? "leave it 0" : "leave out data.tokenizer, the model brings its own");
  RunConfig result = given;
  if (result.model.vocab == 0) result.model.vocab = wanted;
  return result;
}

void RunState::check_data_of_ranks() {
  const std::string own = fmt::format("{:016x}", saved.data_hash);
  std::string lead = own;
  world.broadcast_text(lead, 0);
  if (own != lead)
    fail(ErrorKind::kData, "the training data of this rank is not rank 0's (hash {}, rank 0's {})", own,
         lead);
}

std::optional<Checkpoint> RunState::find_resume_point(bool is_resume) {
  if (!is_resume) return std::nullopt;
  const auto found = newest_healthy();
  if (!found && !store.list().empty())
    fail(ErrorKind::kData,
         "{}: there is no healthy checkpoint to resume: all are damaged or cannot be read; restore one, or "
         "start "
         "again into a new folder",
         store.folder().string());
  if (!found)
    fail(ErrorKind::kUsage, "{}: there is no healthy checkpoint to resume; {}", store.folder().string(),
         is_start_debris(folder.run())
             ? "the run ended before its first step: start it again without --resume, into the same folder"
             : "start again into a new folder");
  return found;
}

RunData RunState::load_data(const DataConfig& given) const {
  struct ToldToEnd {};
  std::optional<RunData> loaded;
  try {
    loaded = load_run_data(given, resumed_tokenizer(), [this](std::string_view, int64_t, int64_t) {
      if (is_interrupted) throw ToldToEnd{};
    });
  } catch (const ToldToEnd&) {
  }
  if (world.is_any(!loaded)) throw InterruptedStart{};
  return *std::move(loaded);
}

// Only rank 0's list includes changes of the layout, because only rank 0 reads the run's config.toml.
std::optional<ResumeCheck> RunState::check_changes(const RunConfig& given, OtherText other_text) const {
  if (!resumed) return std::nullopt;
  std::optional<std::filesystem::path> run_config;
  if (is_lead()) run_config = folder.config();
  return ResumeCheck(resumed->path, run_config, given, other_text);
}

std::optional<std::string> RunState::resumed_tokenizer() const {
  if (!resumed || !changes->keeps_tokenizer()) return std::nullopt;
  return read_file(resumed->path / "tokenizer.json");
}

void RunState::start() {
  trainer.initialise();
  const std::string& folder_of_start = config.train.init_from;
  if (folder_of_start.empty()) return;
  const StartWeights weights = read_start_weights(folder_of_start, trainer);
  if (config.model.lora.rank > 0) saved.base_fingerprint = weights.fingerprint;
  folder.record().start = RunStart{.folder = folder_of_start,
                                   .model_type = weights.model_type,
                                   .config_hash = weights.config_hash,
                                   .tensors = weights.tensors,
                                   .files = weights.files};
  console.line(fmt::format("started from {}: {}, {} tensors in {} file{}", folder_of_start,
                           weights.model_type, weights.tensors, weights.files,
                           weights.files == 1 ? "" : "s"));
  const std::vector<TokenId> ends = data.tokenizer->eos_ids();
  const std::optional<TokenId> end_of_text = data.tokenizer->end_of_text();
  if (ends.empty() || (ends.size() == 1 && ends.front() == end_of_text)) return;
  std::string ids;
  for (const TokenId id : ends) ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id);
  console.line(fmt::format("generated text ends at token {}; {}", ids,
                           end_of_text ? fmt::format("documents end with token {}", *end_of_text)
                                       : "documents have no token between them"));
}

void RunState::resume() {
  changes->require_state(trainer);
  const bool has_adapters = config.model.lora.rank > 0;
  const std::string& base = config.train.init_from;
  const uint64_t fingerprint = has_adapters ? read_start_weights(base, trainer).fingerprint : 0;
  const TextHashes before = restore(*resumed);
  if (has_adapters) require_base(resumed->path, base, saved.base_fingerprint, fingerprint);
  changes->require_text(before, text());
  times.spent_before_s = saved.spent_s;
  if (const std::string& death = folder.record().death_before(); !death.empty()) console.line(death);
  console.line(fmt::format("resumed {} at step {}", resumed->path.string(), saved.step));
  if (!before.val)
    console.line(
        "note: the checkpoint does not say what text it was evaluated on; it is taken to be the same");
  if (const std::string changed = changes->text(); !changed.empty()) console.line(changed);
  const RunPosition next = plan.position(saved.step, loader.position() * config.model.context, saved.spent_s);
  if (saved.step == 0 || plan.is_finished(next)) return;
  const ResumeRate rate = resume_rate(changes->before(), config, next);
  rate.is_jump ? console.warning(rate.text) : console.line(rate.text);
}

TextHashes RunState::restore(const Checkpoint& checkpoint) {
  saved = load_checkpoint(checkpoint.path, trainer);
  const TextHashes before{.train = saved.data_hash, .val = saved.val_hash};
  saved.data_hash = text().train;
  saved.val_hash = text().val;
  loader.seek(saved.sample_position);
  guard.losses().set_values(saved.recent_losses);
  guard.set_norms(saved.recent_norms, saved.is_norm_rise_reported);
  const RunLog::Evaluations earlier = log.truncate_after(saved.step);
  last.best_val_loss = earlier.best_loss;
  // The logs of other ranks may have begun after the run did.
  last.is_eval_missing = world.broadcast_number(earlier.last_step, 0) != saved.step;
  last.checkpoint = checkpoint.path;
  last.save_step = saved.step;
  last.eval_step = last.sample_step = -1;
  if (config.checkpoint.keeps_best) find_best(earlier.losses);
  return before;
}

// Finds the checkpoint with the lowest validation loss again and makes the link name it: a killed run may
// have saved it without naming it, and a rollback takes the steps after it back. val_losses: by step, up to
// the restored one.
void RunState::find_best(const std::map<int64_t, double>& val_losses) {
  BestCheckpoint best;
  if (is_lead()) {
    std::vector<BestCheckpoint> candidates;
    for (const Checkpoint& checkpoint : store.list())
      if (const auto found = val_losses.find(checkpoint.step);
          found != val_losses.end() && std::isfinite(found->second))
        candidates.push_back({checkpoint.step, found->second});
    std::ranges::sort(candidates, {}, [](const BestCheckpoint& c) { return std::pair(c.val_loss, c.step); });
    try {
      for (const BestCheckpoint& candidate : candidates) {
        const bool is_verified = candidate.step == saved.step;  // it has just been restored
        if (!is_verified && !store.is_good(candidate.step, damage_report())) continue;
        best = candidate;
        break;
      }
      best.step < 0 ? store.clear_best() : store.set_best(best.step);
    } catch (const Error& error) {
      console.warning(error.what());
    }
  }
  best.step = world.broadcast_number(best.step, 0);
  best.val_loss = std::bit_cast<double>(world.broadcast_number(std::bit_cast<int64_t>(best.val_loss), 0));
  last.best = best;
}

DamageReport RunState::damage_report() const {
  return [this](const std::filesystem::path& path, const std::string& what) {
    console.warning(fmt::format("{}: {}; passed over", path.string(), what));
  };
}

// Seconds spent of the time budget; all ranks use one clock.
double RunState::spent_s() const {
  if (config.train.max_time_s == 0) return 0;
  return world.max(times.spent_before_s + seconds_since(times.training_start));
}

RunPosition RunState::position() const {
  return plan.position(steps_done(), loader.position() * config.model.context, spent_s());
}

void RunState::begin_phase(TimeLimit::Phase phase, int64_t work) {
  time_limit.begin(phase, work);
  beat();
}

void RunState::beat() { folder.heartbeat().beat(steps_done(), time_limit.phase(), time_limit.seconds()); }

std::optional<Checkpoint> RunState::newest_healthy(int64_t before_step) {
  Checkpoint found{.step = -1, .path = {}};
  if (is_lead()) {
    if (const auto checkpoint = store.newest_healthy(damage_report(), before_step)) found = *checkpoint;
  }
  found.step = world.broadcast_number(found.step, 0);
  std::string path = found.path.string();
  world.broadcast_text(path, 0);
  found.path = path;
  return found.step < 0 ? std::nullopt : std::optional(found);
}

void RunState::log_event(const std::string& event, const std::string& reason, int64_t step,
                         const RunPosition& at) {
  log.write(step,
            {{"event", event},
             {"reason", reason},
             {"sample", at.tokens / config.model.context},
             {"samples", at.step_tokens / config.model.context}},
            false);
}

}  // namespace ingot
