#include "ingot/run/run_saver.h"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "ingot/comm/agree.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/run/run_start.h"

namespace ingot {
namespace {

// Returns true if the same save may succeed later: the state is sound, and the file system refused it.
bool may_pass(const Error& error) {
  return error.kind() == ErrorKind::kDisk || error.kind() == ErrorKind::kData;
}

SaveSchedule schedule_for(const RunConfig& config) {
  // A run that rolls back to its newest checkpoint must not depend on the clock.
  const double every_s = config.guard.rolls_back() ? 0 : 60 * config.checkpoint.every_minutes;
  return SaveSchedule(config.checkpoint.every, every_s);
}

// Adds the time of its life to a sum of seconds.
class StallTimer {
 public:
  explicit StallTimer(double& sum_s) : sum_s_(sum_s) {}
  ~StallTimer() { sum_s_ += seconds_since(begin_); }
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;

 private:
  double& sum_s_;
  RunClock::time_point begin_ = RunClock::now();
};

}  // namespace

std::string checkpoint_config(RunConfig config) {
  config.train.stop_at = 0;
  config.parallel = {};
  config.checkpoint.is_async = CheckpointConfig{}.is_async;
  config.train.is_overcommitted = false;
  config.train.device = Device::kCpu;
  config.train.has_graph = false;
  config.precision.allows_tf32 = false;
  return config_toml(config, ConfigDocs::kNone);
}

RunSaver::RunSaver(const RunSetup& setup, RunServices& services, const Progress& progress,
                   SavedCheckpoints saved)
    : setup_(setup),
      services_(services),
      progress_(progress),
      saved_(std::move(saved)),
      schedule_(schedule_for(setup.config)),
      newest_(setup.resumed ? Newest::kSaved : Newest::kPruned),
      writer_(setup.is_lead() ? &services.store : nullptr, services.trainer) {
  if (!setup.config.checkpoint.copies_state()) return;
  const bool is_on_device = setup.config.train.device == Device::kCuda;
  room_.emplace("copy for checkpoints", CheckpointWriter::copy_bytes(services.trainer),
                is_on_device ? Memory::kPinned : Memory::kHost);
}

bool RunSaver::is_due() {
  const int64_t step = services_.steps_done();
  if (!schedule_.reads_clock()) return schedule_.is_due(step, progress_.training_s());
  // A save that is due by the clock waits for the one that is being written.
  const bool may_begin = !writer_.is_active() || is_due_after(step, setup_.config.checkpoint.every);
  return setup_.world.is_any(setup_.is_lead() && may_begin && schedule_.is_due(step, progress_.training_s()));
}

void RunSaver::save() {
  if (!settle()) return;
  if (saved_.step == services_.steps_done()) return;
  const StallTimer timer(stall_s_);
  std::optional<Error> trouble = begin(room_ ? &*room_ : nullptr);
  if (!trouble && !room_) trouble = finish_pending();
  if (trouble) save_failed(*trouble);
}

void RunSaver::save_failed(const Error& error) {
  const double pause_s = schedule_.failed(progress_.training_s());
  setup_.console.warning(
      fmt::format("step {}: the checkpoint could not be saved: {}; the run goes on and tries again in {}",
                  pending_.step, error.what(), format_time(pause_s)));
}

void RunSaver::save_or_fail() {
  settle();
  constexpr std::array kPauses_s = {1.0, 2.0, 4.0};
  for (const double pause_s : kPauses_s) {
    const std::optional<Error> trouble = save_now();
    if (!trouble) return;
    setup_.console.warning(fmt::format("step {}: the checkpoint could not be saved: {}; trying again in {}",
                                       services_.steps_done(), trouble->what(), format_time(pause_s)));
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  }
  if (const std::optional<Error> trouble = save_now()) throw Error(*trouble);
}

std::optional<Error> RunSaver::save_now() {
  if (saved_.step == services_.steps_done()) return std::nullopt;
  const std::optional<Error> trouble = begin(nullptr);
  return trouble ? trouble : finish_pending();
}

// Returns the error if the file system refused the checkpoint; nothing of it is left then. Throws a
// kNumerics error if the state is not finite.
template <typename Work>
std::optional<Error> RunSaver::attempt(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kNumerics) refuse_broken_state(pending_.step, error);
    if (!may_pass(error)) throw;
    return error;
  }
  return std::nullopt;
}

std::optional<Error> RunSaver::begin(Arena* room) {
  finish_prune();
  pending_ = {.step = services_.steps_done(), .begin = RunClock::now()};
  services_.begin_phase(TimeLimit::Phase::kSaving);
  setup_.console.live("saving");
  require_finite_eval();
  Guard& guard = services_.guard;
  const TrainerState state{.step = pending_.step,
                           .tokens = progress_.tokens,
                           .sample_position = services_.loader.position(),
                           .spent_s = progress_.spent_s(setup_),
                           .data_hash = setup_.text.train,
                           .recent_losses = guard.losses().values(),
                           .excluded_samples = progress_.excluded_samples,
                           .val_hash = setup_.text.val,
                           .recent_norms = guard.norms(),
                           .is_norm_rise_reported = guard.is_rise_reported(),
                           .base_fingerprint = progress_.base_fingerprint};
  guard.checkpoint_saved();  // now, because a run that rolls back must not depend on when it is committed
  return attempt([&] {
    agree(setup_.world, [&] { services_.log.sync(); });
    writer_.begin(*setup_.data.tokenizer, checkpoint_config(setup_.config), state, room);
  });
}

std::optional<Error> RunSaver::finish_pending() {
  services_.begin_phase(TimeLimit::Phase::kSaving);
  return attempt([&] { committed(writer_.finish()); });
}

void RunSaver::committed(const std::filesystem::path& path) {
  saved_.path = path;
  saved_.step = pending_.step;
  schedule_.saved(progress_.training_s());
  const bool is_used = services_.steps_done() > pending_.step || progress_.eval_step == pending_.step;
  newest_ = is_used ? Newest::kUsed : Newest::kSaved;
  if (best_due_.step == pending_.step) name_best();
  // The limit of later saves counts all of the time that this one took.
  services_.begin_phase(TimeLimit::Phase::kSaving);
  services_.time_limit.end(seconds_since(pending_.begin));
  prune();
}

void RunSaver::go_on(bool is_any_busy) {
  const StallTimer timer(stall_s_);
  if (pruner_.is_done()) finish_prune();
  if (!writer_.is_active() || is_any_busy) return;
  const std::optional<Error> trouble = attempt([&] {
    if (const auto path = writer_.advance()) committed(*path);
  });
  if (trouble) save_failed(*trouble);
}

bool RunSaver::settle() {
  const StallTimer timer(stall_s_);
  finish_prune();
  if (!writer_.is_active()) return true;
  const std::optional<Error> trouble = finish_pending();
  if (trouble) save_failed(*trouble);
  finish_prune();
  return !trouble;
}

void RunSaver::wait_until_copied() {
  const StallTimer timer(stall_s_);
  writer_.wait_until_copied();
}

void RunSaver::state_is_corrupt() {
  if (!is_writing_this_step()) return;
  writer_.abandon();
  setup_.console.line(fmt::format("the checkpoint of step {} is given up", pending_.step));
}

double RunSaver::take_stall_s() { return std::exchange(stall_s_, 0.0); }

// Throws a kNumerics error if the current weights have been evaluated and their loss is not finite.
void RunSaver::require_finite_eval() {
  if (progress_.eval_step != services_.steps_done()) return;
  const EvalResult& eval = progress_.eval->result;
  if (eval.tokens > 0 && !std::isfinite(eval.loss))
    refuse_broken_state(services_.steps_done(), Error(fmt::format("its validation loss is {}", eval.loss)));
}

void RunSaver::refuse_broken_state(int64_t step, const Error& error) {
  const auto healthy = newest_healthy(services_.store, setup_.console, setup_.world, step);
  const std::string what =
      saved_.step == step ? fmt::format("it is of no use in {}", saved_.path.string()) : "it was not saved";
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
  if (newest_ == Newest::kSaved && progress_.eval_step == services_.steps_done()) newest_ = Newest::kUsed;
  prune();
  finish_prune();
  try {
    services_.log.sync();
  } catch (const Error& error) {
    setup_.console.warning(error.what());  // the state is saved; only a line about it is missing
  }
}

void RunSaver::evaluated(double val_loss) {
  const bool is_written = writer_.is_active() && pending_.step == best_due_.step;
  const double best = is_written ? best_due_.val_loss : saved_.best.val_loss;
  if (!setup_.config.checkpoint.keeps_best || !(val_loss < best)) return;
  best_due_ = {.step = services_.steps_done(), .val_loss = val_loss};
  if (saved_.step == best_due_.step) name_best();
}

bool RunSaver::is_best_due() const { return best_due_.step == services_.steps_done(); }

// Makes the committed checkpoint of best_due_ the best one. If the link cannot be made, the run continues,
// because the checkpoint itself is saved.
void RunSaver::name_best() {
  saved_.best = std::exchange(best_due_, {});
  if (!setup_.is_lead()) return;
  finish_prune();
  try {
    services_.log.sync();  // a resumed run finds the loss of the best checkpoint there
    services_.store.set_best(saved_.best.step);
  } catch (const Error& error) {
    setup_.console.warning(error.what());
  }
}

void RunSaver::weights_were_used(int64_t first_step) {
  if (newest_ == Newest::kSaved && first_step >= saved_.step) newest_ = Newest::kUsed;
}

void RunSaver::prune() {
  if (newest_ != Newest::kUsed || writer_.is_active()) return;
  newest_ = Newest::kPruned;
  std::optional<TimedPhase> phase;
  if (!room_) phase.emplace(services_, TimeLimit::Phase::kSaving);  // rank 0 may read checkpoints
  if (!setup_.is_lead()) return;
  finish_prune();
  const auto work = [this] {
    if (room_) BackgroundTask::become_patient();
    try {
      services_.store.prune(
          static_cast<int>(setup_.config.checkpoint.keep),
          [this](const std::filesystem::path& path, const std::string& what) {
            prune_warnings_.push_back(fmt::format("{}: {}; older checkpoints are kept", path.string(), what));
          });
    } catch (const Error& error) {
      prune_warnings_.emplace_back(error.what());
    }
  };
  if (room_) return pruner_.start(work);
  pruner_.run(work);
  finish_prune();
}

void RunSaver::finish_prune() {
  pruner_.wait();
  for (const std::string& warning : prune_warnings_) setup_.console.warning(warning);
  prune_warnings_.clear();
}

}  // namespace ingot
