// run_training: the loop, and everything a run leaves behind; the step itself is in session_step.cpp.
#include <algorithm>
#include <array>
#include <cmath>

#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/ops/matmul.h"
#include "ingot/train/config_toml.h"
#include "ingot/train/machine.h"
#include "ingot/train/peak.h"
#include "ingot/train/run_report.h"
#include "ingot/train/run_samples.h"
#include "ingot/train/session.h"

namespace ingot {
namespace {

// The checkpoint's own copy: where this part of the run is to stop, and on what it goes on, is no
// property of the model.
std::string checkpoint_config(RunConfig config) {
  config.train.stop_at = 0;
  config.parallel = {};
  config.train.device = Device::kCpu;
  config.train.has_graph = false;
  config.precision.allows_tf32 = false;
  return config_toml(config, ConfigDocs::kNone);
}

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

double sum_over(double value, Reducer& ranks) {
  std::array<double, 1> sum{value};
  ranks.sum(sum);
  return sum[0];
}

bool rolls_back(const GuardConfig& guard) {
  return guard.non_finite == GuardPolicy::kRollback || guard.spike == GuardPolicy::kRollback;
}

}  // namespace

Session::Session(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
                 const std::atomic<bool>& is_interrupted, std::unique_ptr<TrainerParts> parts)
    : folder_(folder),
      console_(console),
      is_interrupted_(is_interrupted),
      all_(parts->reducers().all),
      store_(folder.checkpoints()),
      resumed_(find_resume_point(is_resume)),
      data_(load_run_data(config.data, resumed_tokenizer())),
      config_(with_vocab(config, *data_.tokenizer)),
      trainer_(config_, std::move(parts)),
      sampler_(config.data.order == "epochs" ? SampleOrder::kEpochs : SampleOrder::kRandom, config.train.seed,
               data_.train.tokens(), config.model.context),
      loader_(data_.train, sampler_,
              {.shape = trainer_.batch_shape(),
               .readers = trainer_.share().ranks,
               .reader = trainer_.share().rank,
               .ring = 4}),
      plan_(config_),
      guard_(config_.guard),
      log_(folder, first_step_again()),
      peak_gflops_(sum_over(
          measure_product_peak(config.precision.compute, config.train.device, config.precision.allows_tf32),
          all_)) {
  state_.data_hash = data_.train.content_hash();
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

// What rank 0 finds: it alone reads every byte.
std::optional<Checkpoint> Session::newest_good() {
  std::string found;
  if (is_lead()) {
    const auto checkpoint =
        store_.newest_good([&](const std::filesystem::path& path, const std::string& what) {
          console_.warning(fmt::format("{}: {}; passed over", path.string(), what));
        });
    if (checkpoint) found = fmt::format("{} {}", checkpoint->step, checkpoint->path.string());
  }
  all_.broadcast(found, 0);
  if (found.empty()) return std::nullopt;
  return Checkpoint{.step = std::stoll(found), .path = found.substr(found.find(' ') + 1)};
}

std::optional<Checkpoint> Session::find_resume_point(bool is_resume) {
  if (!is_resume) return std::nullopt;
  const auto found = newest_good();
  if (!found)
    fail(ErrorKind::kUsage, "{}: there is no good checkpoint to resume; start again into a new folder",
         store_.folder().string());
  return found;
}

std::optional<std::string> Session::resumed_tokenizer() const {
  if (!resumed_) return std::nullopt;
  return read_file(resumed_->path / "tokenizer.json");
}

std::optional<int64_t> Session::first_step_again() const {
  return resumed_ ? std::optional(resumed_->step + 1) : std::nullopt;
}

void Session::resume() {
  const uint64_t data_hash = state_.data_hash;
  restore(*resumed_);
  if (state_.data_hash != data_hash)
    fail(ErrorKind::kData,
         "the training data is not what {} was trained on (hash {:016x}, now {:016x}); give the same data, "
         "or start a "
         "new run",
         resumed_->path.string(), state_.data_hash, data_hash);
  spent_before_s_ = state_.spent_s;
  console_.line(fmt::format("resumed {} at step {}", resumed_->path.string(), state_.step));
}

// Everything back to where the checkpoint was saved, but for the clock.
void Session::restore(const Checkpoint& checkpoint) {
  state_ = load_checkpoint(checkpoint.path, trainer_);
  loader_.seek(state_.sample_position);
  guard_.losses().set_values(state_.recent_losses);
  best_val_loss_ = log_.truncate_after(state_.step);
  last_checkpoint_ = checkpoint.path;
  last_save_step_ = state_.step;
  last_eval_step_ = last_sample_step_ = -1;
}

void Session::say_hello() {
  const ModelConfig& model = trainer_.model().config();
  console_.line(fmt::format(
      "model {} layers x {} wide, {} heads, context {}: {} parameters, {} in {}", model.layers, model.width,
      model.heads, model.context, format_count(static_cast<double>(model.parameters())),
      name(config_.precision.compute), matmul_engine(config_.precision.compute, config_.train.device)));
  const DataShare& share = trainer_.share();
  if (all_.ranks() > 1)
    console_.line(fmt::format("ranks {}: {}; each computes {} of a step's {} x {} sequences, {} at a time",
                              all_.ranks(), config_.parallel.to_string(),
                              share.micros(config_.train.grad_accum) * share.batch_size,
                              config_.train.grad_accum, config_.train.batch_size, share.batch_size));
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
  console_.line(fmt::format("ready after {} | {:.0f} GFLOP/s of products measured | run folder {}",
                            format_time(seconds_since(start_)), peak_gflops_, folder_.path().string()));
}

bool Session::is_asked_to_stop() const {
  std::array<double, 1> asked{is_interrupted_.load() ? 1.0 : 0.0};
  all_.max(asked);
  return asked[0] > 0;
}

// Of the time budget; one clock for all ranks.
double Session::spent_s() const {
  if (config_.train.max_time_s == 0) return 0;
  std::array<double, 1> time{spent_before_s_ + seconds_since(training_start_)};
  all_.max(time);
  return time[0];
}

RunPosition Session::position() const {
  return plan_.position(trainer_.steps_done(), loader_.position() * config_.model.context, spent_s());
}

void Session::evaluate() {
  const int64_t step = trainer_.steps_done();
  if (last_eval_step_ == step) return;
  console_.live("evaluating");
  const EvalResult result = trainer_.evaluate(data_.val, config_.eval.max_tokens);
  last_eval_step_ = step;
  const bool is_best = result.loss < best_val_loss_;
  best_val_loss_ = std::min(best_val_loss_, result.loss);
  last_eval_ = result;
  console_.eval({.step = step,
                 .loss = result.loss,
                 .bits_per_byte = result.bits_per_byte,
                 .top1 = result.top1,
                 .is_best = is_best});
  log_.write(
      step,
      {{"val_loss", result.loss}, {"val_bits_per_byte", result.bits_per_byte}, {"val_top1", result.top1}},
      true);
  if (is_lead()) write_loss_plot(folder_);
}

void Session::sample() {
  const int64_t step = trainer_.steps_done();
  const SamplesConfig& options = config_.sample;
  if (last_sample_step_ == step || options.count == 0) return;
  last_sample_step_ = step;
  if (!is_lead() && !trainer_.params().is_sharded()) return;
  const std::string text = run_samples(options, trainer_, *data_.tokenizer, config_.train.seed, console_);
  if (!is_lead()) return;
  make_folders(folder_.samples());
  write_file(folder_.samples() / fmt::format("step-{:09}.txt", step), text);
}

void Session::save() {
  const int64_t step = trainer_.steps_done();
  if (last_save_step_ == step) return;
  console_.live("saving");
  state_.step = step;
  state_.sample_position = loader_.position();
  state_.spent_s = position().time_s;
  state_.recent_losses = guard_.losses().values();
  log_.sync();
  std::string path;
  if (is_lead())
    path = save_checkpoint(store_, trainer_, *data_.tokenizer, checkpoint_config(config_), state_).string();
  else
    help_save_checkpoint(trainer_);
  all_.broadcast(path, 0);
  last_checkpoint_ = path;
  last_save_step_ = step;
  guard_.checkpoint_saved();
  if (!is_lead()) return;
  store_.prune(static_cast<int>(config_.checkpoint.keep),
               [&](const std::filesystem::path& path, const std::string& what) {
                 console_.warning(fmt::format("{}: {}; older checkpoints are kept", path.string(), what));
               });
}

void Session::write_summary(const std::string& status) {
  RunSummary summary{.status = status,
                     .steps = trainer_.steps_done(),
                     .tokens = state_.tokens,
                     .val_loss = {},
                     .val_bits_per_byte = {},
                     .wall_s = seconds_since(start_),
                     .train_s = train_s_,
                     .peak_rss_bytes = peak_rss_bytes(),
                     .non_finite_gradients = non_finite_gradients_,
                     .config_hash = config_hash(config_)};
  if (last_eval_) {
    summary.val_loss = last_eval_->loss;
    summary.val_bits_per_byte = last_eval_->bits_per_byte;
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

// Where even that cannot be written, the error under way says why.
void Session::record_failure() noexcept {
  try {
    log_.sync();
    write_summary("failed");
  } catch (...) {
    return;
  }
}

// None: there is a step to come.
std::optional<TrainOutcome::Status> Session::reason_to_end() {
  using enum TrainOutcome::Status;
  if (is_finished()) return kCompleted;
  if (is_asked_to_stop()) return kInterrupted;
  const int64_t stop_at = config_.train.stop_at;
  if (stop_at > 0 && trainer_.steps_done() >= stop_at) return kStopped;
  return std::nullopt;
}

bool Session::is_anything_due() const {
  return is_due(config_.eval.every) || is_due(config_.sample.every) || is_due(config_.checkpoint.every);
}

TrainOutcome Session::run() {
  if (is_lead()) folder_.write_config(config_);
  write_summary("running");
  say_hello();
  log_.write(trainer_.steps_done(), arena_fields(trainer_), true);
  training_start_ = Clock::now();
  progress_before_ = plan_.progress(position());
  if (rolls_back(config_.guard) && !resumed_) save();
  TrainOutcome outcome;
  while (true) {
    if (const auto status = reason_to_end()) {
      if (!settle()) continue;
      outcome.status = *status;
      break;
    }
    if (!step() || is_finished() || !is_anything_due() || !settle()) continue;
    if (is_due(config_.eval.every)) evaluate();
    if (is_due(config_.sample.every)) sample();
    if (is_due(config_.checkpoint.every)) save();
  }
  const bool is_interrupted = outcome.status == TrainOutcome::Status::kInterrupted;
  if (is_interrupted) save();  // first of all
  if (!is_interrupted) evaluate();
  save();
  const char* status = is_interrupted                                     ? "interrupted"
                       : outcome.status == TrainOutcome::Status::kStopped ? "stopped"
                                                                          : "completed";
  if (outcome.status == TrainOutcome::Status::kCompleted) sample();
  report_bubble();
  write_summary(status);
  if (!is_interrupted && is_lead()) write_run_report(folder_, config_, data_.val_documents, console_);
  outcome.steps = trainer_.steps_done();
  outcome.tokens = state_.tokens;
  outcome.final_eval = last_eval_.value_or(EvalResult{});
  outcome.checkpoint = last_checkpoint_;
  return outcome;
}

TrainOutcome run_training(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
                          const std::atomic<bool>& is_interrupted, std::unique_ptr<TrainerParts> parts) {
  if (config.train.threads > 0) set_num_threads(static_cast<int>(config.train.threads));
  console.open_log(folder.log());
  const bool is_alone = parts->reducers().all.ranks() == 1;
  Session session(config, folder, is_resume, console, is_interrupted, std::move(parts));
  try {
    return session.run();
  } catch (const Error& error) {
    session.record_failure();
    if (is_alone) throw;
    throw Error(fmt::format("after step {}: {}", session.steps_done(), error.what()), error.kind());
  } catch (...) {
    session.record_failure();
    throw;
  }
}

}  // namespace ingot
