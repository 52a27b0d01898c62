// Saving in a Session: when a checkpoint is due, and what happens if it cannot be written. All ranks call
// each function alike.
#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/run/session.h"
#include "ingot/train/agree.h"

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

}  // namespace

SaveSchedule Session::save_schedule(const RunConfig& config) {
  // A run that rolls back to its newest checkpoint must not depend on the clock.
  const double every_s = config.guard.rolls_back() ? 0 : 60 * config.checkpoint.every_minutes;
  return SaveSchedule(config.checkpoint.every, every_s);
}

// All ranks use rank 0's clock.
bool Session::is_save_due() {
  const int64_t step = trainer_.steps_done();
  const double now_s = seconds_since(training_start_);
  if (!saves_.reads_clock()) return saves_.is_due(step, now_s);
  std::array<double, 1> due{is_lead() && saves_.is_due(step, now_s) ? 1.0 : 0.0};
  all_.max(due);
  return due[0] > 0;
}

// Saves during the run: a failure is a warning, and the save is tried again after a pause.
void Session::save() {
  const std::optional<Error> trouble = try_save();
  if (!trouble) return;
  const double pause_s = saves_.failed(seconds_since(training_start_));
  console_.warning(
      fmt::format("step {}: the checkpoint could not be saved: {}; the run goes on and tries again in {}",
                  trainer_.steps_done(), trouble->what(), format_time(pause_s)));
}

// Saves at the end of the run: after a few attempts it throws the cause.
void Session::save_at_end() {
  constexpr std::array kPauses_s = {1.0, 2.0, 4.0};
  for (const double pause_s : kPauses_s) {
    const std::optional<Error> trouble = try_save();
    if (!trouble) return;
    console_.warning(fmt::format("step {}: the checkpoint could not be saved: {}; trying again in {}",
                                 trainer_.steps_done(), trouble->what(), format_time(pause_s)));
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  }
  if (const std::optional<Error> trouble = try_save()) throw Error(*trouble);
}

// Returns the error if the file system refused the checkpoint; nothing of it is left then. Throws a
// kNumerics error if the state is not finite.
std::optional<Error> Session::try_save() {
  const int64_t step = trainer_.steps_done();
  if (last_save_step_ == step) return std::nullopt;
  const TimedPhase phase(time_limit_, TimeLimit::Phase::kSaving);
  console_.live("saving");
  require_finite_eval();
  state_.step = step;
  state_.sample_position = loader_.position();
  state_.spent_s = position().time_s;
  state_.recent_losses = guard_.losses().values();
  std::string path;
  try {
    agree(all_, [&] { log_.sync(); });
    if (is_lead())
      path = save_checkpoint(store_, trainer_, *data_.tokenizer, checkpoint_config(config_), state_).string();
    else
      help_save_checkpoint(trainer_);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kNumerics) refuse_broken_state(error);
    if (!may_pass(error)) throw;
    return error;
  }
  all_.broadcast(path, 0);
  last_checkpoint_ = path;
  last_save_step_ = step;
  saves_.saved(seconds_since(training_start_));
  guard_.checkpoint_saved();
  newest_ = last_eval_step_ == step ? Newest::kUsed : Newest::kSaved;
  prune();
  return std::nullopt;
}

// Throws a kNumerics error if the current weights have been evaluated and their loss is not finite.
void Session::require_finite_eval() {
  if (last_eval_step_ == trainer_.steps_done() && last_eval_->tokens > 0 && !std::isfinite(last_eval_->loss))
    refuse_broken_state(Error(fmt::format("its validation loss is {}", last_eval_->loss)));
}

void Session::refuse_broken_state(const Error& error) {
  const int64_t step = trainer_.steps_done();
  const auto healthy = newest_healthy(step);
  const std::string what = last_save_step_ == step
                               ? fmt::format("it is of no use in {}", last_checkpoint_.string())
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

// Called after the last save and the evaluation of the saved weights.
void Session::finish_save() {
  require_finite_eval();
  if (newest_ == Newest::kSaved && last_eval_step_ == trainer_.steps_done()) newest_ = Newest::kUsed;
  prune();
  try {
    log_.sync();
  } catch (const Error& error) {
    console_.warning(error.what());  // the state is saved; only a line about it is missing
  }
}

// Finite weights may still give a loss that is not finite, so older checkpoints are removed only after the
// newest has been used, by an evaluation of the same weights or by the step after it. Failing to remove
// them does not end the run.
void Session::prune() {
  if (newest_ != Newest::kUsed) return;
  newest_ = Newest::kPruned;
  const TimedPhase phase(time_limit_, TimeLimit::Phase::kSaving);  // rank 0 may read checkpoints
  if (!is_lead()) return;
  const auto report = [&](const std::filesystem::path& path, const std::string& what) {
    console_.warning(fmt::format("{}: {}; older checkpoints are kept", path.string(), what));
  };
  try {
    store_.prune(static_cast<int>(config_.checkpoint.keep), report);
  } catch (const Error& error) {
    console_.warning(error.what());
  }
}

// Returns what rank 0 finds; only rank 0 reads every byte.
std::optional<Checkpoint> Session::newest_healthy(int64_t before_step) {
  std::string found;
  if (is_lead()) {
    const auto checkpoint = store_.newest_healthy(
        [&](const std::filesystem::path& path, const std::string& what) {
          console_.warning(fmt::format("{}: {}; passed over", path.string(), what));
        },
        before_step);
    if (checkpoint) found = fmt::format("{} {}", checkpoint->step, checkpoint->path.string());
  }
  all_.broadcast(found, 0);
  if (found.empty()) return std::nullopt;
  return Checkpoint{.step = std::stoll(found), .path = found.substr(found.find(' ') + 1)};
}

}  // namespace ingot
