#include "ingot/run/run_saver.h"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "ingot/comm/agree.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

// The configuration stored in the checkpoint. It leaves out where this part of the run stops and what it
// runs on, because those are not properties of the model.
std::string checkpoint_config(RunConfig config) {
  config.train.stop_at = 0;
  config.parallel = {};
  config.train.is_overcommitted = false;
  config.train.device = Device::kCpu;
  config.train.has_graph = false;
  config.precision.allows_tf32 = false;
  return config_toml(config, ConfigDocs::kNone);
}

// Returns true if the same save may succeed later: the state is sound, and the file system refused it.
bool may_pass(const Error& error) {
  return error.kind() == ErrorKind::kDisk || error.kind() == ErrorKind::kData;
}

SaveSchedule schedule_for(const RunConfig& config) {
  // A run that rolls back to its newest checkpoint must not depend on the clock.
  const double every_s = config.guard.rolls_back() ? 0 : 60 * config.checkpoint.every_minutes;
  return SaveSchedule(config.checkpoint.every, every_s);
}

double training_s(const RunState& run) { return RunState::seconds_since(run.times.training_start); }

}  // namespace

RunSaver::RunSaver(RunState& run)
    : run_(run),
      schedule_(schedule_for(run.config)),
      newest_(run.resumed ? Newest::kSaved : Newest::kPruned) {}

bool RunSaver::is_due() {
  const int64_t step = run_.steps_done();
  if (!schedule_.reads_clock()) return schedule_.is_due(step, training_s(run_));
  return run_.world.is_any(run_.is_lead() && schedule_.is_due(step, training_s(run_)));
}

void RunSaver::save() {
  const std::optional<Error> trouble = try_save();
  if (!trouble) return;
  const double pause_s = schedule_.failed(training_s(run_));
  run_.console.warning(
      fmt::format("step {}: the checkpoint could not be saved: {}; the run goes on and tries again in {}",
                  run_.steps_done(), trouble->what(), format_time(pause_s)));
}

void RunSaver::save_or_fail() {
  constexpr std::array kPauses_s = {1.0, 2.0, 4.0};
  for (const double pause_s : kPauses_s) {
    const std::optional<Error> trouble = try_save();
    if (!trouble) return;
    run_.console.warning(fmt::format("step {}: the checkpoint could not be saved: {}; trying again in {}",
                                     run_.steps_done(), trouble->what(), format_time(pause_s)));
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  }
  if (const std::optional<Error> trouble = try_save()) throw Error(*trouble);
}

// Returns the error if the file system refused the checkpoint; nothing of it is left then. Throws a
// kNumerics error if the state is not finite.
std::optional<Error> RunSaver::try_save() {
  const int64_t step = run_.steps_done();
  if (run_.last.save_step == step) return std::nullopt;
  const TimedPhase phase(run_, TimeLimit::Phase::kSaving);
  run_.console.live("saving");
  require_finite_eval();
  TrainerState& state = run_.saved;
  state.step = step;
  state.sample_position = run_.loader.position();
  state.spent_s = run_.position().time_s;
  state.recent_losses = run_.guard.losses().values();
  std::string path;
  try {
    agree(run_.world, [&] { run_.log.sync(); });
    if (run_.is_lead())
      path = save_checkpoint(run_.store, run_.trainer, *run_.data.tokenizer, checkpoint_config(run_.config),
                             state)
                 .string();
    else
      help_save_checkpoint(run_.trainer);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kNumerics) refuse_broken_state(error);
    if (!may_pass(error)) throw;
    return error;
  }
  run_.world.broadcast_text(path, 0);
  run_.last.checkpoint = path;
  run_.last.save_step = step;
  schedule_.saved(training_s(run_));
  run_.guard.checkpoint_saved();
  newest_ = run_.last.eval_step == step ? Newest::kUsed : Newest::kSaved;
  prune();
  return std::nullopt;
}

// Throws a kNumerics error if the current weights have been evaluated and their loss is not finite.
void RunSaver::require_finite_eval() {
  const RunState::Last& last = run_.last;
  if (last.eval_step == run_.steps_done() && last.eval->tokens > 0 && !std::isfinite(last.eval->loss))
    refuse_broken_state(Error(fmt::format("its validation loss is {}", last.eval->loss)));
}

void RunSaver::refuse_broken_state(const Error& error) {
  const int64_t step = run_.steps_done();
  const auto healthy = run_.newest_healthy(step);
  const std::string what = run_.last.save_step == step
                               ? fmt::format("it is of no use in {}", run_.last.checkpoint.string())
                               : "it was not saved";
  const std::string where =
      healthy ? fmt::format(
                    "the newest healthy checkpoint before it is {}: lower optimizer.lr, or raise "
                    "schedule.warmup_steps, and resume from that",
                    healthy->path.string())
              : "there is no healthy checkpoint before it";
  fail(ErrorKind::kNumerics, "step {}: the state of the run is broken: {}; {}, and {}", step, error.what(),
       what, where);
}

void RunSaver::finish() {
  require_finite_eval();
  if (newest_ == Newest::kSaved && run_.last.eval_step == run_.steps_done()) newest_ = Newest::kUsed;
  prune();
  try {
    run_.log.sync();
  } catch (const Error& error) {
    run_.console.warning(error.what());  // the state is saved; only a line about it is missing
  }
}

void RunSaver::weights_were_used(int64_t first_step) {
  if (newest_ == Newest::kSaved && first_step >= run_.last.save_step) newest_ = Newest::kUsed;
}

void RunSaver::prune() {
  if (newest_ != Newest::kUsed) return;
  newest_ = Newest::kPruned;
  const TimedPhase phase(run_, TimeLimit::Phase::kSaving);  // rank 0 may read checkpoints
  if (!run_.is_lead()) return;
  const auto report = [&](const std::filesystem::path& path, const std::string& what) {
    run_.console.warning(fmt::format("{}: {}; older checkpoints are kept", path.string(), what));
  };
  try {
    run_.store.prune(static_cast<int>(run_.config.checkpoint.keep), report);
  } catch (const Error& error) {
    run_.console.warning(error.what());
  }
}

}  // namespace ingot
