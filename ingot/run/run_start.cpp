#include "ingot/run/run_start.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/run/pair_references.h"
#include "ingot/run/resume_rate.h"

namespace ingot {
namespace {

DamageReport damage_report(Console& console) {
  return [&console](const std::filesystem::path& path, const std::string& what) {
    console.warning(fmt::format("{}: {}; passed over", path.string(), what));
  };
}

// Returns rank 0's number.
double broadcast_real(Communicator& world, double number) {
  return std::bit_cast<double>(world.broadcast_number(std::bit_cast<int64_t>(number), 0));
}

// Finds the checkpoint with the lowest validation loss again and makes the link name it: a killed run may
// have saved it without naming it, and a rollback takes the steps after it back. val_losses: by step, up to
// the restored one.
BestCheckpoint find_best(const std::map<int64_t, double>& val_losses, int64_t restored_step,
                         const RunSetup& setup, CheckpointStore& store) {
  BestCheckpoint best;
  if (setup.is_lead()) {
    std::vector<BestCheckpoint> candidates;
    for (const Checkpoint& checkpoint : store.list())
      if (const auto found = val_losses.find(checkpoint.step);
          found != val_losses.end() && std::isfinite(found->second))
        candidates.push_back({checkpoint.step, found->second});
    std::ranges::sort(candidates, {}, [](const BestCheckpoint& c) { return std::pair(c.val_loss, c.step); });
    try {
      for (const BestCheckpoint& candidate : candidates) {
        const bool is_verified = candidate.step == restored_step;  // it has just been restored
        if (!is_verified && !store.is_good(candidate.step, damage_report(setup.console))) continue;
        best = candidate;
        break;
      }
      best.step < 0 ? store.clear_best() : store.set_best(best.step);
    } catch (const Error& error) {
      setup.console.warning(error.what());
    }
  }
  best.step = setup.world.broadcast_number(best.step, 0);
  best.val_loss = broadcast_real(setup.world, best.val_loss);
  return best;
}

void check_data_of_ranks(const RunSetup& setup) {
  const std::string own = fmt::format("{:016x}", setup.text.train);
  std::string lead = own;
  setup.world.broadcast_text(lead, 0);
  if (own != lead)
    fail(ErrorKind::kData, "the training data of this rank is not rank 0's (hash {}, rank 0's {})", own,
         lead);
}

void start(const RunSetup& setup, Trainer& trainer, Progress& progress) {
  trainer.initialise();
  const std::string& folder = setup.config.train.init_from;
  if (folder.empty()) return;
  const StartWeights weights = read_start_weights(folder, trainer);
  if (setup.config.model.lora.rank > 0) progress.base_fingerprint = weights.fingerprint;
  setup.folder.record().start = RunStart{.folder = folder,
                                         .model_type = weights.model_type,
                                         .config_hash = weights.config_hash,
                                         .tensors = weights.tensors,
                                         .files = weights.files};
  setup.console.line(fmt::format("started from {}: {}, {} tensors in {} file{}", folder, weights.model_type,
                                 weights.tensors, weights.files, weights.files == 1 ? "" : "s"));
  if (const std::string warning = start_rate_warning(weights, setup.config); !warning.empty())
    setup.console.warning(warning);
  const std::vector<TokenId> ends = setup.data.tokenizer->eos_ids();
  const std::optional<TokenId> end_of_text = setup.data.tokenizer->end_of_text();
  if (ends.empty() || (ends.size() == 1 && ends.front() == end_of_text)) return;
  std::string ids;
  for (const TokenId id : ends) ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id);
  setup.console.line(fmt::format("generated text ends at token {}; {}", ids,
                                 end_of_text ? fmt::format("documents end with token {}", *end_of_text)
                                             : "documents have no token between them"));
}

SavedCheckpoints resume(const RunSetup& setup, RunServices& services, Progress& progress) {
  const RunConfig& config = setup.config;
  Console& console = setup.console;
  const Checkpoint& checkpoint = setup.resumed->checkpoint;
  ResumeCheck changes = setup.resumed->changes;
  changes.require_state(services.trainer);
  const bool has_adapters = config.model.lora.rank > 0;
  const std::string& base = config.train.init_from;
  const uint64_t fingerprint = has_adapters ? read_start_weights(base, services.trainer).fingerprint : 0;
  const auto [state, saved] = restore(checkpoint, setup, services, progress);
  if (has_adapters) require_base(checkpoint.path, base, state.base_fingerprint, fingerprint);
  changes.require_text({.train = state.data_hash, .val = state.val_hash}, setup.text);
  progress.spent_before_s = state.spent_s;
  if (const std::string& death = setup.folder.record().death_before(); !death.empty()) console.line(death);
  console.line(fmt::format("resumed {} at step {}", checkpoint.path.string(), state.step));
  if (!state.val_hash)
    console.line(
        "note: the checkpoint does not say what text it was evaluated on; it is taken to be the same");
  if (const std::string changed = changes.text(); !changed.empty()) console.line(changed);
  const RunPosition next =
      setup.plan.position(state.step, services.loader.position() * config.model.context, state.spent_s);
  if (state.step == 0 || setup.plan.is_finished(next)) return saved;
  const ResumeRate rate = resume_rate(changes.before(), config, next);
  rate.is_jump ? console.warning(rate.text) : console.line(rate.text);
  return saved;
}

}  // namespace

std::optional<Checkpoint> newest_healthy(const CheckpointStore& store, Console& console, Communicator& world,
                                         int64_t before_step) {
  Checkpoint found{.step = -1, .path = {}};
  if (world.rank() == 0) {
    if (const auto checkpoint = store.newest_healthy(damage_report(console), before_step))
      found = *checkpoint;
  }
  found.step = world.broadcast_number(found.step, 0);
  std::string path = found.path.string();
  world.broadcast_text(path, 0);
  found.path = path;
  return found.step < 0 ? std::nullopt : std::optional(found);
}

Restored restore(const Checkpoint& checkpoint, const RunSetup& setup, RunServices& services,
                 Progress& progress) {
  Restored restored{.state = load_checkpoint(checkpoint.path, services.trainer), .saved = {}};
  const TrainerState& state = restored.state;
  services.loader.seek(state.sample_position);
  services.guard.losses().set_values(state.recent_losses);
  services.guard.set_norms(state.recent_norms, state.is_norm_rise_reported);
  const RunLog::Evaluations earlier = services.log.truncate_after(state.step, setup.config.eval);
  progress.tokens = state.tokens;
  progress.excluded_samples = state.excluded_samples;
  progress.base_fingerprint = state.base_fingerprint;
  progress.eval_step = progress.sample_step = -1;
  progress.best_loss = earlier.best_loss;
  // The logs of other ranks may have begun after the run did.
  progress.lowest = {.loss = broadcast_real(setup.world, earlier.lowest.loss),
                     .evaluations_since = setup.world.broadcast_number(earlier.lowest.evaluations_since, 0),
                     .step = setup.world.broadcast_number(earlier.lowest.step, 0)};
  progress.is_eval_missing = setup.world.broadcast_number(earlier.last_step, 0) != state.step;
  restored.saved = {.step = state.step, .path = checkpoint.path};
  if (setup.config.checkpoint.keeps_best)
    restored.saved.best = find_best(earlier.losses, state.step, setup, services.store);
  return restored;
}

SavedCheckpoints start_or_resume(const RunSetup& setup, RunServices& services, Progress& progress) {
  check_data_of_ranks(setup);
  if (setup.resumed) {
    read_references(setup);
    return resume(setup, services, progress);
  }
  start(setup, services.trainer, progress);
  const TimedPhase phase(services, TimeLimit::Phase::kEvaluation);
  compute_references(setup.data, services.trainer, [&](int64_t, int64_t) {
    services.beat();
    return true;
  });
  write_references(setup);
  return {};
}

}  // namespace ingot
