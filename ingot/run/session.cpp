// run_training: the loop and the run's output.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "ingot/config/config_toml.h"
#include "ingot/config/idle_settings.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/core/process/thread_limit.h"
#include "ingot/ops/kernel_report.h"
#include "ingot/ops/matmul.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/guarded_step.h"
#include "ingot/run/record/run_report.h"
#include "ingot/run/run.h"
#include "ingot/run/run_evaluator.h"
#include "ingot/run/run_samples.h"
#include "ingot/run/run_start.h"
#include "ingot/run/thread_count.h"

namespace ingot {
namespace {

std::string memory_line(const Trainer& trainer) {
  std::string memory;
  double total = 0;
  for (const Trainer::ArenaUse& use : trainer.arenas()) {
    memory += fmt::format("{}{} {}", memory.empty() ? "" : ", ", use.name,
                          format_bytes(static_cast<double>(use.bytes)));
    total += static_cast<double>(use.bytes);
  }
  return fmt::format("memory {}: {}", format_bytes(total), memory);
}

const char* name(TrainOutcome::Status status) {
  switch (status) {
    case TrainOutcome::Status::kCompleted:
      return "completed";
    case TrainOutcome::Status::kStopped:
      return "stopped";
    case TrainOutcome::Status::kInterrupted:
    case TrainOutcome::Status::kNotBegun:
      return "interrupted";
  }
  return "";
}

// Session runs one part of a run, from its start or a checkpoint to its end or the point where it is
// stopped: the loop around the steps, the evaluations and the samples. All ranks write a checkpoint together;
// rank 0 writes samples and report.
class Session {
 public:
  // Puts the run at its start or at the checkpoint that it resumes (run_start.h). Borrows both arguments.
  Session(const RunSetup& setup, RunServices& services)
      : setup_(setup),
        services_(services),
        saver_(setup, services, progress_, start_or_resume(setup, services, progress_)),
        evaluator_(setup, services, progress_, saver_),
        reporter_(setup, services.trainer, services.guard, progress_, services.log),
        step_(setup, services, progress_, saver_, reporter_) {}

  // Makes steps, and whatever is due between them, until the run ends.
  TrainOutcome run();
  // Records in run.json that the run ended in an error, and writes report.html as far as the run came.
  void record_failure(const std::string& error, int exit_code) noexcept;

 private:
  void begin();
  void log_start();
  void name_replaced_products();
  TrainOutcome finish(TrainOutcome::Status status);
  std::optional<TrainOutcome::Status> reason_to_end();
  bool is_finished() const { return setup_.plan.is_finished(step_.position()); }
  bool is_due(int64_t every) const { return is_due_after(services_.steps_done(), every); }
  bool is_asked_to_stop();
  bool evaluate();
  void sample();
  void write_aside(const std::function<void()>& write);
  std::vector<MixUse> mix_use() const;
  void write_summary(const std::string& status, const std::string& error = "", int exit_code = 0);

  const RunSetup& setup_;
  RunServices& services_;
  Progress progress_;
  RunSaver saver_;
  RunEvaluator evaluator_;
  StepReporter reporter_;
  GuardedStep step_;
  bool is_step_long_ = true;  // true if the last step of some rank was long, and before the first step
  bool has_named_products_ = false;
  bool is_any_saving_ = false;  // true if some rank still writes its part of a checkpoint
};

void Session::log_start() {
  Console& console = setup_.console;
  const RunConfig& config = setup_.config;
  const Layout& layout = services_.trainer.layout();
  const ModelConfig& model = layout.model->config();
  console.line(fmt::format(
      "model {} layers x {} wide, {} heads, context {}: {} parameters{}, {} in {}", model.layers, model.width,
      model.heads, model.context, format_count(static_cast<double>(model.parameters())),
      model.lora.rank == 0 ? ""
                           : fmt::format(" ({} of adapters are trained)",
                                         format_count(static_cast<double>(model.trained_parameters()))),
      ingot::name(config.precision.compute), matmul_engine(config.precision.compute, config.train.device)));
  const DataShard& data_shard = layout.data_shard;
  if (setup_.world.size() > 1)
    console.line(fmt::format("ranks {}: {}; each computes {} of a step's {} x {} sequences, {} at a time",
                             setup_.world.size(), config.parallel.to_string(),
                             data_shard.micros(config.train.grad_accum) * data_shard.batch_size,
                             config.train.grad_accum, config.train.batch_size, data_shard.batch_size));
  if (const auto& pipeline = layout.executor->pipeline()) console.line("stages " + pipeline->layout);
  console.line("data " + setup_.data.summary);
  if (!setup_.data.warning.empty()) console.warning(setup_.data.warning);
  console.line("optimizer " + services_.trainer.state().optimizer.summary());
  console.line(memory_line(services_.trainer));
  if (config.activations.policy == RecomputePolicy::kAuto)
    console.line("computed again in backward: " + layout.executor->recompute().summary());
  console.line(fmt::format("ready after {} | run folder {}", format_time(seconds_since(progress_.start)),
                           setup_.folder.path().string()));
}

// Says once which products the device's library refused in the first step.
void Session::name_replaced_products() {
  if (std::exchange(has_named_products_, true)) return;
  const std::string refused = kernel_report(*services_.trainer.layout().stream).refused();
  if (!refused.empty())
    setup_.console.line("note: cuBLASLt has no kernel for some products, which others replace: " + refused);
}

bool Session::is_asked_to_stop() {
  constexpr double kLong_s = 0.25;  // a step that takes longer is abandoned between two micro-batches
  std::array<double, 3> asked{setup_.is_interrupted.load() ? 1.0 : 0.0, reporter_.last_step_s(),
                              saver_.is_busy() ? 1.0 : 0.0};
  setup_.world.max(asked);
  is_step_long_ = asked[1] > kLong_s;
  is_any_saving_ = asked[2] > 0;
  return asked[0] > 0;
}

// Returns false if an interruption ended the evaluation without a result.
bool Session::evaluate() {
  if (progress_.eval_step == services_.steps_done()) return true;
  if (!evaluator_.evaluate()) return false;
  write_aside([&] { write_loss_plot(setup_.folder, services_.log.losses()); });
  return true;
}

void Session::sample() {
  const int64_t step = services_.steps_done();
  if (progress_.sample_step == step || setup_.config.sample.count == 0) return;
  progress_.sample_step = step;
  const TimedPhase phase(services_, TimeLimit::Phase::kSampling);
  if (!setup_.is_lead() && !services_.trainer.params().is_sharded()) return;
  std::string text;
  try {
    text = run_samples(setup_.config, services_.trainer, *setup_.data.tokenizer, setup_.console);
  } catch (const Error& error) {
    // Ranks that share the weights all meet an error of these kinds at the same place.
    if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kUsage &&
        error.kind() != ErrorKind::kNumerics)
      throw;
    if (setup_.is_lead())
      setup_.console.warning(fmt::format("no sample at step {}: {}; training goes on", step, error.what()));
    return;
  }
  write_aside([&] {
    make_folders(setup_.folder.samples());
    write_file(setup_.folder.samples() / fmt::format("step-{:09}.txt", step), text);
    services_.log.write_samples(step, text);
  });
}

// Runs `write` on rank 0. If the file cannot be written, prints a warning and the run continues.
void Session::write_aside(const std::function<void()>& write) {
  if (!setup_.is_lead()) return;
  try {
    write();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDisk) throw;
    setup_.console.warning(error.what());
  }
}

// Returns how much of each source of a mixture the run has used until its last checkpoint.
std::vector<MixUse> Session::mix_use() const {
  std::vector<MixUse> uses;
  const MixOrder& mix = setup_.sampler.mix();
  const int64_t context = setup_.config.model.context, samples = progress_.tokens / context;
  for (const MixSource& source : setup_.data.mix) {
    const auto i = static_cast<int64_t>(uses.size());
    const auto tokens = static_cast<double>(mix.taken(i, samples) * context);
    MixUse use{.source = source.name,
               .share = mix.share(i),
               .train_tokens = source.train_tokens,
               .epochs = tokens / static_cast<double>(source.train_tokens)};
    if (progress_.eval)
      for (const auto& [name, loss] : progress_.eval->losses)
        if (name == source.name) use.val_loss = loss;
    uses.push_back(std::move(use));
  }
  return uses;
}

void Session::write_summary(const std::string& status, const std::string& error, int exit_code) {
  RunSummary summary{.status = status,
                     .steps = services_.steps_done(),
                     .tokens = progress_.tokens,
                     .val_loss = {},
                     .val_bits_per_byte = {},
                     .wall_s = seconds_since(progress_.start),
                     .peak_rss_bytes = peak_rss_bytes(),
                     .config_hash = config_hash(setup_.config),
                     .product_peak_gflops = {},
                     .exit_code = exit_code,
                     .error = error};
  reporter_.fill(summary);
  if (progress_.eval) {
    const EvalResult& eval = progress_.eval->result;
    summary.val_loss = eval.loss;
    summary.val_bits_per_byte = eval.bits_per_byte;
    summary.eval_tokens = eval.tokens;
    const auto sets = std::span(progress_.eval->losses).last(setup_.data.sets.size());
    summary.val_losses.assign(sets.begin(), sets.end());
    for (const TaskResult& task : progress_.eval->tasks)
      summary.tasks.emplace_back(task.name, figures_of(task));
  }
  summary.mix = mix_use();
  if (const BestCheckpoint& best = saver_.saved().best; best.step >= 0) {
    summary.best_step = best.step;
    summary.best_val_loss = best.val_loss;
  }
  setup_.folder.write_summary(summary);
  if (status != "running")
    setup_.console.run({.status = status,
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
  services_.heartbeat.beat_now(services_.steps_done(), services_.time_limit.phase(),
                               services_.time_limit.seconds());
  try {
    services_.log.sync();
  } catch (...) {  // run.json may still be writable
  }
  try {
    write_summary("failed", error, exit_code);
  } catch (...) {
    return;
  }
  if (setup_.is_lead())
    write_run_report(setup_.folder, setup_.config, {.status = "failed", .error = error}, setup_.console);
}

// Returns nullopt if the run continues with another step.
std::optional<TrainOutcome::Status> Session::reason_to_end() {
  using enum TrainOutcome::Status;
  if (is_finished() || evaluator_.is_out_of_patience()) return kCompleted;
  if (is_asked_to_stop()) return kInterrupted;
  const int64_t stop_at = setup_.config.train.stop_at;
  if (stop_at > 0 && services_.steps_done() >= stop_at) return kStopped;
  return std::nullopt;
}

void Session::begin() {
  if (setup_.is_lead()) setup_.folder.write_config(setup_.config);
  services_.log.write_config(setup_.config);
  services_.beat();
  write_summary("running");
  log_start();
  reporter_.report_arenas();
  progress_.training_start = RunClock::now();
  const bool needs_first_checkpoint =
      setup_.config.guard.rolls_back() || setup_.config.checkpoint.is_made_at_start;
  if (needs_first_checkpoint && !setup_.resumed) saver_.save_or_fail();
  if (progress_.is_eval_missing && is_due(setup_.config.eval.every)) evaluate();
}

TrainOutcome Session::run() {
  begin();
  const RunConfig& config = setup_.config;
  while (true) {
    if (const auto status = reason_to_end()) {
      if (!step_.drain() || !step_.is_sound()) continue;
      return finish(*status);
    }
    saver_.go_on(is_any_saving_);
    const bool is_made = step_.make(is_step_long_);
    saver_.prune();
    name_replaced_products();
    if (!is_made || is_finished()) continue;
    const bool saves = saver_.is_due();
    const bool evaluates = is_due(config.eval.every), samples = is_due(config.sample.every);
    if (!(saves || evaluates || samples) || !step_.drain()) continue;
    if (evaluates && !evaluate()) continue;
    if (samples) sample();
    if ((saves || saver_.is_best_due()) && step_.is_sound()) saver_.save();
  }
}

TrainOutcome Session::finish(TrainOutcome::Status status) {
  using enum TrainOutcome::Status;
  saver_.save_or_fail();  // before anything else
  if (status != kInterrupted && !evaluate()) status = kInterrupted;
  saver_.finish();
  if (status == kCompleted) sample();
  services_.begin_phase(TimeLimit::Phase::kEnd);
  reporter_.report_bubble();
  const std::string& best_by = setup_.config.eval.best_by;
  const std::string of_text = best_by.empty() ? "" : " of " + best_by;
  if (status == kCompleted && !is_finished())
    setup_.console.line(fmt::format(
        "the run ends after step {}: in {} evaluations the loss{} was not below {:.4f} "
        "(eval.patience)",
        services_.steps_done(), progress_.lowest.evaluations_since, of_text, progress_.lowest.loss));
  if (const BestCheckpoint& best = saver_.saved().best; best.step >= 0)
    setup_.console.line(fmt::format("best checkpoint: step {}, validation loss{} {:.4f}, in {}", best.step,
                                    of_text, best.val_loss,
                                    (setup_.folder.checkpoints() / kBestName).string()));
  write_summary(name(status));
  if (status == kCompleted) services_.log.write_completed();
  const Documents* yardstick = status == kCompleted ? &setup_.data.val_documents : nullptr;
  write_aside([&] {
    write_run_report(setup_.folder, setup_.config, {.status = name(status), .val_documents = yardstick},
                     setup_.console);
  });
  return {.status = status,
          .steps = services_.steps_done(),
          .tokens = progress_.tokens,
          .final_eval = progress_.eval.value_or(RunEval{}).result,
          .checkpoint = saver_.saved().path};
}

TrainOutcome run_session(const RunSetup& setup, RunServices& services) {
  Session session(setup, services);
  try {
    return session.run();
  } catch (const Error& error) {
    session.record_failure(error.what(), exit_code(error.kind()));
    if (setup.world.size() == 1) throw;
    throw Error(fmt::format("after step {}: {}", services.steps_done(), error.what()), error.kind());
  } catch (const std::bad_alloc&) {
    session.record_failure("out of memory", exit_code(ErrorKind::kMemory));
    throw;
  } catch (const std::exception& error) {
    session.record_failure(error.what(), exit_code(ErrorKind::kInternal));
    throw;
  }
}

}  // namespace

TrainOutcome run_training(const RunConfig& config, RunFolder& folder, bool is_resume, Console& console,
                          const std::atomic<bool>& is_interrupted, Mesh& mesh, DataMismatch data_mismatch) {
  use_threads(config.train);
  if (const std::string warning = thread_warning(thread_use()); !warning.empty()) console.warning(warning);
  for (const std::string& setting : idle_settings(config)) console.warning(setting);
  if (!is_resume && folder.is_lead()) folder.write_config(config);  // first, for has_only_stale_files()
  console.open_log(folder.log());
  CheckpointStore store(folder.checkpoints());
  std::optional<ResumePoint> resumed;
  if (is_resume) resumed = find_resume_point(store, config, folder, console, *mesh.world, data_mismatch);
  const std::optional<RunSetup> setup =
      load_run(config, std::move(resumed), folder, console, is_interrupted, *mesh.world);
  if (!setup) return {.status = TrainOutcome::Status::kNotBegun};
  RunServices services(*setup, store, parallelize(setup->config, mesh));
  return run_session(*setup, services);
}

}  // namespace ingot
