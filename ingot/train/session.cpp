// run_training: the loop around Trainer::step, and everything a run leaves behind.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/formats/tensorboard.h"
#include "ingot/ops/matmul.h"
#include "ingot/train/checkpoint.h"
#include "ingot/train/config_toml.h"
#include "ingot/train/console.h"
#include "ingot/train/generate.h"
#include "ingot/train/machine.h"
#include "ingot/train/peak.h"
#include "ingot/train/run.h"
#include "ingot/train/run_data.h"
#include "ingot/train/run_folder.h"
#include "ingot/train/run_report.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The checkpoint's own copy: where this part of the run is to stop is no property of the model.
std::string checkpoint_config(RunConfig config) {
  config.train.stop_at = 0;
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

class Session {
 public:
  Session(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
          const std::atomic<bool>& is_interrupted)
      : folder_(folder),
        console_(console),
        is_interrupted_(is_interrupted),
        store_(folder.checkpoints()),
        resumed_(find_resume_point(is_resume)),
        data_(load_run_data(config.data, resumed_tokenizer())),
        config_(with_vocab(config, *data_.tokenizer)),
        trainer_(config_),
        sampler_(config.data.order == "epochs" ? SampleOrder::kEpochs : SampleOrder::kRandom,
                 config.train.seed, data_.train.tokens(), config.model.context),
        loader_(data_.train, sampler_,
                {.shape = trainer_.batch_shape(), .readers = 1, .reader = 0, .ring = 4}),
        metrics_(folder.metrics()),
        tensorboard_(folder.tensorboard(), unix_time_s(), first_step_again()),
        peak_gflops_(measure_product_peak(config.precision.compute)) {
    state_.data_hash = data_.train.content_hash();
    if (resumed_)
      resume();
    else
      trainer_.initialise();
  }

  TrainOutcome run();
  // run.json says that the run ended in an error.
  void record_failure() noexcept;

 private:
  std::optional<Checkpoint> find_resume_point(bool is_resume);
  std::optional<std::string> resumed_tokenizer() const;
  std::optional<int64_t> first_step_again() const;
  void log(std::initializer_list<MetricsField> fields);
  void resume();
  void say_hello();
  double progress() const;
  double learning_rate() const;
  bool is_finished() const;
  bool is_due(int64_t every) const { return every > 0 && trainer_.steps_done() % every == 0; }
  void step();
  void evaluate();
  void sample();
  void save();
  void write_summary(const std::string& status);

  RunFolder& folder_;
  Console& console_;
  const std::atomic<bool>& is_interrupted_;
  Clock::time_point start_ = Clock::now();
  CheckpointStore store_;
  std::optional<Checkpoint> resumed_;
  RunData data_;
  RunConfig config_;
  Trainer trainer_;
  Sampler sampler_;
  Loader loader_;
  MetricsLog metrics_;
  TensorboardWriter tensorboard_;
  double peak_gflops_;
  TrainerState state_;
  Clock::time_point training_start_;
  double spent_before_s_ = 0;  // of the time budget, in earlier parts of the run
  double train_s_ = 0;         // in steps
  std::optional<EvalResult> last_eval_;
  int64_t last_eval_step_ = -1, last_save_step_ = -1, last_sample_step_ = -1;
  double best_val_loss_ = std::numeric_limits<double>::infinity();
  std::filesystem::path last_checkpoint_;
};

std::optional<Checkpoint> Session::find_resume_point(bool is_resume) {
  if (!is_resume) return std::nullopt;
  const auto found = store_.newest_good([&](const std::filesystem::path& path, const std::string& what) {
    console_.warning(fmt::format("{}: {}; passed over", path.string(), what));
  });
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

// One line of metrics.jsonl, and its numbers as TensorBoard scalars; the first field is the step.
void Session::log(std::initializer_list<MetricsField> fields) {
  metrics_.write(fields);
  const int64_t step = trainer_.steps_done();
  for (const MetricsField& field : fields)
    if (const double* value = std::get_if<double>(&field.second))
      tensorboard_.scalar(field.first, *value, step, unix_time_s());
  tensorboard_.flush();
}

void Session::resume() {
  const uint64_t data_hash = state_.data_hash;
  state_ = load_checkpoint(resumed_->path, trainer_);
  if (state_.data_hash != data_hash)
    fail(ErrorKind::kData,
         "the training data is not what {} was trained on (hash {:016x}, now {:016x}); give the same data, "
         "or start a "
         "new run",
         resumed_->path.string(), state_.data_hash, data_hash);
  spent_before_s_ = state_.spent_s;
  loader_.seek(state_.sample_position);
  metrics_.truncate_after(state_.step);
  for (const MetricsRow& row : read_metrics(folder_.metrics()))
    best_val_loss_ = std::min(best_val_loss_, row.number("val_loss").value_or(best_val_loss_));
  last_checkpoint_ = resumed_->path;
  last_save_step_ = state_.step;
  console_.line(fmt::format("resumed {} at step {}", resumed_->path.string(), state_.step));
}

void Session::say_hello() {
  const ModelConfig& model = trainer_.model().config();
  console_.line(fmt::format("model {} layers x {} wide, {} heads, context {}: {} parameters, {} in {}",
                            model.layers, model.width, model.heads, model.context,
                            format_count(static_cast<double>(model.parameters())),
                            name(config_.precision.compute), matmul_engine(config_.precision.compute)));
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

double Session::progress() const {
  const TrainConfig& train = config_.train;
  if (train.max_time_s > 0)
    return std::min(1.0, (spent_before_s_ + seconds_since(training_start_)) / train.max_time_s);
  return static_cast<double>(trainer_.steps_done()) / static_cast<double>(train.steps);
}

double Session::learning_rate() const {
  const int64_t step = trainer_.steps_done();
  const double multiplier = config_.train.max_time_s > 0
                                ? schedule_at_progress(config_.schedule, step, progress())
                                : schedule_at_step(config_.schedule, step, config_.train.steps);
  return config_.optimizer.lr * multiplier;
}

bool Session::is_finished() const {
  return config_.train.max_time_s > 0 ? progress() >= 1 : trainer_.steps_done() >= config_.train.steps;
}

void Session::step() {
  const double lr = learning_rate();
  const Clock::time_point begin = Clock::now();
  const StepResult result = trainer_.step(loader_, {.lr = lr});
  const double step_s = seconds_since(begin);
  train_s_ += step_s;
  state_.tokens += result.tokens;
  const int64_t step = trainer_.steps_done();

  StepReport report{.step = step,
                    .steps = config_.train.max_time_s > 0 ? 0 : config_.train.steps,
                    .progress = progress(),
                    .loss = result.loss,
                    .grad_norm = result.grad_norm,
                    .lr = lr,
                    .step_ms = step_s * 1e3,
                    .tokens_per_s = static_cast<double>(result.tokens) / step_s,
                    .mfu = {},
                    .eta_s = {}};
  report.mfu = trainer_.model().config().flops_per_token() * report.tokens_per_s / (peak_gflops_ * 1e9);
  const double elapsed = seconds_since(training_start_);
  const double done = static_cast<double>(step - std::max<int64_t>(0, resumed_ ? resumed_->step : 0));
  report.eta_s = config_.train.max_time_s > 0
                     ? (1 - report.progress) * config_.train.max_time_s
                     : elapsed / std::max(1.0, done) * static_cast<double>(config_.train.steps - step);
  const bool is_logged = step == 1 || is_due(config_.train.log_every) || is_finished();
  console_.step(report, is_logged);
  if (!is_logged) return;
  log({{"step", step},
       {"tokens", state_.tokens},
       {"loss", result.loss},
       {"lr", lr},
       {"grad_norm", result.grad_norm},
       {"step_ms", report.step_ms},
       {"tokens_per_s", report.tokens_per_s},
       {"mfu", *report.mfu},
       {"top1", result.top1},
       {"loader_wait_ms", result.wait_s * 1e3}});
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
  log({{"step", step},
       {"val_loss", result.loss},
       {"val_bits_per_byte", result.bits_per_byte},
       {"val_top1", result.top1}});
  write_loss_plot(folder_);
}

void Session::sample() {
  const int64_t step = trainer_.steps_done();
  const SamplesConfig& options = config_.sample;
  if (last_sample_step_ == step || options.count == 0) return;
  last_sample_step_ = step;
  Generator generator(trainer_.model(), trainer_.params());
  std::string all;
  for (int64_t i = 0; i < options.count; ++i) {
    const std::string prompt =
        options.prompts.empty() ? "" : options.prompts[static_cast<size_t>(i) % options.prompts.size()];
    console_.line(fmt::format("--- sample {} of {}, step {}", i + 1, options.count, step));
    std::string text;
    generate_text(generator, *data_.tokenizer, prompt, options.tokens,
                  {.temperature = static_cast<float>(options.temperature),
                   .top_k = options.top_k,
                   .top_p = static_cast<float>(options.top_p)},
                  config_.train.seed + static_cast<uint64_t>(i), [&](std::string_view piece) {
                    console_.stream(piece);
                    text += piece;
                  });
    all += fmt::format("--- {}\n{}\n", i + 1, text);
  }
  console_.line("---");
  make_folders(folder_.samples());
  write_file(folder_.samples() / fmt::format("step-{:09}.txt", step), all);
}

void Session::save() {
  const int64_t step = trainer_.steps_done();
  if (last_save_step_ == step) return;
  console_.live("saving");
  state_.step = step;
  state_.sample_position = loader_.position();
  const bool has_budget = config_.train.max_time_s > 0;
  state_.spent_s = has_budget ? spent_before_s_ + seconds_since(training_start_) : 0;
  metrics_.sync();
  last_checkpoint_ = save_checkpoint(store_, trainer_, *data_.tokenizer, checkpoint_config(config_), state_);
  last_save_step_ = step;
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
    metrics_.sync();
    write_summary("failed");
  } catch (...) {
    return;
  }
}

TrainOutcome Session::run() {
  folder_.write_config(config_);
  write_summary("running");
  say_hello();
  training_start_ = Clock::now();
  TrainOutcome outcome;
  while (!is_finished()) {
    const int64_t stop_at = config_.train.stop_at;
    if (stop_at > 0 && trainer_.steps_done() >= stop_at) outcome.status = TrainOutcome::Status::kStopped;
    if (is_interrupted_.load()) outcome.status = TrainOutcome::Status::kInterrupted;
    if (outcome.status != TrainOutcome::Status::kCompleted) break;
    step();
    if (is_finished()) break;
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
  write_summary(status);
  if (!is_interrupted) write_run_report(folder_, config_, data_.val_documents, console_);
  outcome.steps = trainer_.steps_done();
  outcome.tokens = state_.tokens;
  outcome.final_eval = last_eval_.value_or(EvalResult{});
  outcome.checkpoint = last_checkpoint_;
  return outcome;
}

}  // namespace

TrainOutcome run_training(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
                          const std::atomic<bool>& is_interrupted) {
  if (config.train.threads > 0) set_num_threads(static_cast<int>(config.train.threads));
  console.open_log(folder.log());
  Session session(config, folder, is_resume, console, is_interrupted);
  try {
    return session.run();
  } catch (...) {
    session.record_failure();
    throw;
  }
}

}  // namespace ingot
