// run_training: the loop and the run's output; session_step.cpp has the step itself.
#include <algorithm>
#include <array>
#include <cmath>

#include "ingot/config/config_toml.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/ops/matmul.h"
#include "ingot/run/eval_tokens.h"
#include "ingot/run/eval_watch.h"
#include "ingot/run/record/run_report.h"
#include "ingot/run/record/start_debris.h"
#include "ingot/run/run_samples.h"
#include "ingot/run/session.h"
#include "ingot/run/thread_count.h"

namespace ingot {
namespace {

RunConfig with_vocab(RunConfig config, const Tokenizer& tokenizer) {
  const int64_t wanted = tokenizer.vocab_size();
  if (config.model.vocab != 0 && config.model.vocab < wanted)
    fail(ErrorKind::kUsage, "model.vocab = {} is too small for the tokenizer's {} tokens; leave it 0",
         config.model.vocab, wanted);
  if (config.model.vocab == 0) config.model.vocab = wanted;
  return config;
}

std::vector<MetricsField> arena_fields(const Trainer& trainer) {
  std::vector<MetricsField> fields;
  for (const Trainer::ArenaUse& use : trainer.arenas()) {
    std::string key = "bytes_" + use.name;
    std::ranges::replace(key, ' ', '_');
    fields.emplace_back(key, static_cast<int64_t>(use.bytes));
  }
  return fields;
}

}  // namespace

Session::Session(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
                 const std::atomic<bool>& is_interrupted, std::unique_ptr<TrainerParts> parts,
                 OtherText other_text)
    : folder_(folder),
      console_(console),
      is_interrupted_(is_interrupted),
      all_(parts->reducers().all),
      time_limit_(parts->time_limit()),
      store_(folder.checkpoints()),
      resumed_(find_resume_point(is_resume)),
      changes_(check_changes(config, other_text)),
      data_(load_run_data(config.data, resumed_tokenizer())),
      config_(changes_ ? changes_->with_vocab(config, *data_.tokenizer)
                       : with_vocab(config, *data_.tokenizer)),
      trainer_(config_, std::move(parts)),
      sampler_(config.data.order, config.train.seed, data_.train.tokens(), config.model.context),
      loader_(data_.train, sampler_,
              {.shape = trainer_.batch_shape(),
               .readers = trainer_.data_shard().ranks,
               .reader = trainer_.data_shard().rank}),
      plan_(config_),
      guard_(config_.guard),
      saves_(save_schedule(config_)),
      log_(folder, first_step_again()),
      mfu_(config.precision.compute, config.train.device, config.precision.allows_tf32, all_) {
  folder_.record().inputs = hashes_of(data_);
  text_ = {.train = folder_.record().inputs->train_hash, .val = folder_.record().inputs->val_hash};
  state_.data_hash = text_.train;
  state_.val_hash = text_.val;
  check_data_of_ranks();
  if (resumed_)
    resume();
  else
    trainer_.initialise();
}

void Session::check_data_of_ranks() {
  const std::string own = fmt::format("{:016x}", state_.data_hash);
  std::string lead = own;
  all_.broadcast(lead, 0);
  if (own != lead)
    fail(ErrorKind::kData, "the training data of this rank is not rank 0's (hash {}, rank 0's {})", own,
         lead);
}

std::optional<Checkpoint> Session::find_resume_point(bool is_resume) {
  if (!is_resume) return std::nullopt;
  const auto found = newest_healthy();
  if (!found)
    fail(ErrorKind::kUsage, "{}: there is no healthy checkpoint to resume; {}", store_.folder().string(),
         is_start_debris(folder_.run())
             ? "the run ended before its first step: start it again without --resume, into the same folder"
             : "start again into a new folder");
  return found;
}

// Only rank 0's list includes changes of the layout, because only rank 0 reads the run's config.toml.
std::optional<ResumeCheck> Session::check_changes(const RunConfig& config, OtherText other_text) const {
  if (!resumed_) return std::nullopt;
  std::optional<std::filesystem::path> run_config;
  if (is_lead()) run_config = folder_.config();
  return ResumeCheck(resumed_->path, run_config, config, other_text);
}

std::optional<std::string> Session::resumed_tokenizer() const {
  if (!resumed_ || !changes_->keeps_tokenizer()) return std::nullopt;
  return read_file(resumed_->path / "tokenizer.json");
}

std::optional<int64_t> Session::first_step_again() const {
  return resumed_ ? std::optional(resumed_->step + 1) : std::nullopt;
}

void Session::resume() {
  changes_->require_state(trainer_);
  const TextHashes before = restore(*resumed_);
  changes_->require_text(before, text_);
  spent_before_s_ = state_.spent_s;
  newest_ = Newest::kSaved;
  if (const std::string& death = folder_.record().death_before(); !death.empty()) console_.line(death);
  console_.line(fmt::format("resumed {} at step {}", resumed_->path.string(), state_.step));
  if (!before.val)
    console_.line(
        "note: the checkpoint does not say what text it was evaluated on; it is taken to be the same");
  if (const std::string changes = changes_->text(); !changes.empty()) console_.line(changes);
}

// Restores everything except the clock to the state of the checkpoint. Returns the hashes of its text.
TextHashes Session::restore(const Checkpoint& checkpoint) {
  state_ = load_checkpoint(checkpoint.path, trainer_);
  const TextHashes before{.train = state_.data_hash, .val = state_.val_hash};
  state_.data_hash = text_.train;
  state_.val_hash = text_.val;
  loader_.seek(state_.sample_position);
  guard_.losses().set_values(state_.recent_losses);
  const RunLog::Evaluations earlier = log_.truncate_after(state_.step);
  best_val_loss_ = earlier.best_loss;
  std::string last_eval = fmt::format("{}", earlier.last_step);
  all_.broadcast(last_eval, 0);  // other ranks' logs may have begun after the run did
  is_eval_missing_ = std::stoll(last_eval) != state_.step;
  last_checkpoint_ = checkpoint.path;
  last_save_step_ = state_.step;
  last_eval_step_ = last_sample_step_ = -1;
  return before;
}

void Session::say_hello() {
  const ModelConfig& model = trainer_.model().config();
  console_.line(fmt::format(
      "model {} layers x {} wide, {} heads, context {}: {} parameters, {} in {}", model.layers, model.width,
      model.heads, model.context, format_count(static_cast<double>(model.parameters())),
      name(config_.precision.compute), matmul_engine(config_.precision.compute, config_.train.device)));
  const DataShard& data_shard = trainer_.data_shard();
  if (all_.ranks() > 1)
    console_.line(fmt::format("ranks {}: {}; each computes {} of a step's {} x {} sequences, {} at a time",
                              all_.ranks(), config_.parallel.to_string(),
                              data_shard.micros(config_.train.grad_accum) * data_shard.batch_size,
                              config_.train.grad_accum, config_.train.batch_size, data_shard.batch_size));
  if (const Stages* stages = trainer_.stages()) console_.line("stages " + stages->report().layout);
  console_.line("data " + data_.summary);
  console_.line("optimizer " + trainer_.optimizer().summary());
  std::string memory;
  double total = 0;
  for (const Trainer::ArenaUse& use : trainer_.arenas()) {
    memory += fmt::format("{}{} {}", memory.empty() ? "" : ", ", use.name,
                          format_bytes(static_cast<double>(use.bytes)));
    total += static_cast<double>(use.bytes);
  }
  console_.line(fmt::format("memory {}: {}", format_bytes(total), memory));
  if (config_.activations.policy == RecomputePolicy::kAuto)
    console_.line("computed again in backward: " + trainer_.recompute().summary());
  console_.line(fmt::format("ready after {} | run folder {}", format_time(seconds_since(start_)),
                            folder_.path().string()));
}

bool Session::is_asked_to_stop() {
  constexpr double kLong_s = 0.25;  // a step that takes longer is abandoned between two micro-batches
  std::array<double, 2> asked{is_interrupted_.load() ? 1.0 : 0.0, last_step_s_};
  all_.max(asked);
  is_step_long_ = asked[1] > kLong_s;
  return asked[0] > 0;
}

// Seconds spent of the time budget; all ranks use one clock.
double Session::spent_s() const {
  if (config_.train.max_time_s == 0) return 0;
  std::array<double, 1> time{spent_before_s_ + seconds_since(training_start_)};
  all_.max(time);
  return time[0];
}

RunPosition Session::position() const {
  return plan_.position(trainer_.steps_done(), loader_.position() * config_.model.context, spent_s());
}

// Returns 0 for all tokens.
int64_t Session::eval_tokens() const {
  if (config_.eval.max_tokens) return *config_.eval.max_tokens;
  const int64_t context = config_.model.context;
  return auto_eval_tokens(
      {.first_tokens = plan_.ramp().tokens_before(std::min(config_.eval.every, trainer_.steps_done())),
       .trained_tokens = loader_.position() * context,
       .flops_per_token = trainer_.model().config().flops_per_token(),
       .batch_tokens = config_.train.batch_size * context,
       .text_tokens = data_.val.tokens() - 1});
}

// Returns false if an interruption ended the evaluation without a result.
bool Session::evaluate() {
  const int64_t step = trainer_.steps_done();
  if (last_eval_step_ == step) return true;
  const TimedPhase phase(time_limit_, TimeLimit::Phase::kEvaluation);
  EvalWatch watch(
      console_, all_, [this] { return is_interrupted_.load(); }, [this] { return seconds_since(start_); });
  const EvalResult result = trainer_.evaluate(
      data_.val, eval_tokens(), [&](int64_t tokens, int64_t all) { return watch.go_on(tokens, all); });
  if (!result.is_complete) return false;
  last_eval_step_ = step;
  const bool is_best = result.loss < best_val_loss_;
  best_val_loss_ = std::min(best_val_loss_, result.loss);
  last_eval_ = result;
  console_.eval({.step = step,
                 .loss = result.loss,
                 .bits_per_byte = result.bits_per_byte,
                 .top1 = result.top1,
                 .tokens = result.tokens,
                 .text_tokens = result.text_tokens,
                 .is_best = is_best});
  log_.write(step,
             {{"val_loss", result.loss},
              {"val_bits_per_byte", result.bits_per_byte},
              {"val_top1", result.top1},
              {"val_tokens", result.tokens}},
             true);
  write_aside([&] { write_loss_plot(folder_); });
  return true;
}

void Session::sample() {
  const int64_t step = trainer_.steps_done();
  const SamplesConfig& options = config_.sample;
  if (last_sample_step_ == step || options.count == 0) return;
  last_sample_step_ = step;
  const TimedPhase phase(time_limit_, TimeLimit::Phase::kSampling);
  if (!is_lead() && !trainer_.params().is_sharded()) return;
  const std::string text = run_samples(options, trainer_, *data_.tokenizer, config_.train.seed, console_);
  write_aside([&] {
    make_folders(folder_.samples());
    write_file(folder_.samples() / fmt::format("step-{:09}.txt", step), text);
    log_.write_samples(step, text);
  });
}

// Runs `write` on rank 0. If the file cannot be written, prints a warning and the run continues.
void Session::write_aside(const std::function<void()>& write) {
  if (!is_lead()) return;
  try {
    write();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDisk) throw;
    console_.warning(error.what());
  }
}

void Session::write_summary(const std::string& status, const std::string& error, int exit_code) {
  RunSummary summary{.status = status,
                     .steps = trainer_.steps_done(),
                     .tokens = state_.tokens,
                     .val_loss = {},
                     .val_bits_per_byte = {},
                     .wall_s = seconds_since(start_),
                     .train_s = train_s_,
                     .peak_rss_bytes = peak_rss_bytes(),
                     .non_finite_gradients = non_finite_gradients_,
                     .config_hash = config_hash(config_),
                     .product_peak_gflops = mfu_.peak_gflops(),
                     .exit_code = exit_code,
                     .error = error};
  if (last_eval_) {
    summary.val_loss = last_eval_->loss;
    summary.val_bits_per_byte = last_eval_->bits_per_byte;
    summary.eval_tokens = last_eval_->tokens;
  }
  folder_.write_summary(summary);
  if (status != "running")
    console_.run({.status = status,
                  .steps = summary.steps,
                  .tokens = summary.tokens,
                  .val_loss = summary.val_loss.value_or(std::nan("")),
                  .val_bits_per_byte = summary.val_bits_per_byte.value_or(0),
                  .wall_s = summary.wall_s,
                  .train_s = summary.train_s,
                  .peak_rss_bytes = summary.peak_rss_bytes});
}

// Ignores errors of its own, because the current error already says why the run ended.
void Session::record_failure(const std::string& error, int exit_code) noexcept {
  try {
    log_.sync();
  } catch (...) {  // run.json may still be writable
  }
  try {
    write_summary("failed", error, exit_code);
  } catch (...) {
    return;
  }
  if (is_lead()) write_run_report(folder_, config_, {.status = "failed", .error = error}, console_);
}

// Returns nullopt if the run continues with another step.
std::optional<TrainOutcome::Status> Session::reason_to_end() {
  using enum TrainOutcome::Status;
  if (is_finished()) return kCompleted;
  if (is_asked_to_stop()) return kInterrupted;
  const int64_t stop_at = config_.train.stop_at;
  if (stop_at > 0 && trainer_.steps_done() >= stop_at) return kStopped;
  return std::nullopt;
}

TrainOutcome Session::run() {
  if (is_lead()) folder_.write_config(config_);
  log_.write_config(config_);
  folder_.record().beat(trainer_.steps_done());
  write_summary("running");
  say_hello();
  log_.write(trainer_.steps_done(), arena_fields(trainer_), true);
  training_start_ = Clock::now();
  if (config_.guard.rolls_back() && !resumed_) save();
  if (is_eval_missing_ && is_due(config_.eval.every)) evaluate();
  TrainOutcome outcome;
  while (true) {
    if (const auto status = reason_to_end()) {
      if (!drain()) continue;
      outcome.status = *status;
      break;
    }
    const bool is_made = step();
    prune();
    if (!is_made || is_finished()) continue;
    const bool saves = is_save_due();
    if (!(saves || is_due(config_.eval.every) || is_due(config_.sample.every)) || !drain()) continue;
    if (is_due(config_.eval.every) && !evaluate()) continue;
    if (is_due(config_.sample.every)) sample();
    if (saves) save();
  }
  save_at_end();  // before anything else
  if (outcome.status != TrainOutcome::Status::kInterrupted && !evaluate())
    outcome.status = TrainOutcome::Status::kInterrupted;
  finish_save();
  const bool is_interrupted = outcome.status == TrainOutcome::Status::kInterrupted;
  const char* status = is_interrupted                                     ? "interrupted"
                       : outcome.status == TrainOutcome::Status::kStopped ? "stopped"
                                                                          : "completed";
  if (outcome.status == TrainOutcome::Status::kCompleted) sample();
  time_limit_.begin(TimeLimit::Phase::kEnd);
  report_bubble();
  write_summary(status);
  const bool is_completed = outcome.status == TrainOutcome::Status::kCompleted;
  if (is_completed) log_.write_completed();
  const Documents* yardstick = is_completed ? &data_.val_documents : nullptr;
  write_aside(
      [&] { write_run_report(folder_, config_, {.status = status, .val_documents = yardstick}, console_); });
  outcome.steps = trainer_.steps_done();
  outcome.tokens = state_.tokens;
  outcome.final_eval = last_eval_.value_or(EvalResult{});
  outcome.checkpoint = last_checkpoint_;
  return outcome;
}

TrainOutcome run_training(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
                          const std::atomic<bool>& is_interrupted, std::unique_ptr<TrainerParts> parts,
                          OtherText other_text) {
  use_threads(config.train);
  if (!is_resume && folder.is_lead()) folder.write_config(config);  // first, for is_start_debris()
  console.open_log(folder.log());
  const bool is_alone = parts->reducers().all.ranks() == 1;
  Session session(config, folder, is_resume, console, is_interrupted, std::move(parts), other_text);
  try {
    return session.run();
  } catch (const Error& error) {
    session.record_failure(error.what(), exit_code(error.kind()));
    if (is_alone) throw;
    throw Error(fmt::format("after step {}: {}", session.steps_done(), error.what()), error.kind());
  } catch (const std::bad_alloc&) {
    session.record_failure("out of memory", exit_code(ErrorKind::kMemory));
    throw;
  } catch (const std::exception& error) {
    session.record_failure(error.what(), exit_code(ErrorKind::kInternal));
    throw;
  }
}

}  // namespace ingot
