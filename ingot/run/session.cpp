// run_training: the loop and the run's output.
#include "ingot/run/session.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ingot/config/config_toml.h"
#include "ingot/config/idle_settings.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/core/process/thread_limit.h"
#include "ingot/ops/kernel_report.h"
#include "ingot/ops/matmul.h"
#include "ingot/run/eval_tokens.h"
#include "ingot/run/eval_watch.h"
#include "ingot/run/record/run_report.h"
#include "ingot/run/run_eval.h"
#include "ingot/run/run_samples.h"
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

std::string losses_line(int64_t step, const std::vector<std::pair<std::string, double>>& losses) {
  std::string text;
  for (const auto& [name, loss] : losses) text += fmt::format(" | {} {:.4f}", name, loss);
  return fmt::format("val step {}{}", step, text);
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

}  // namespace

void Session::say_hello() {
  Console& console = run_.console;
  const RunConfig& config = run_.config;
  const Layout& layout = run_.trainer.layout();
  const ModelConfig& model = layout.model->config();
  console.line(fmt::format(
      "model {} layers x {} wide, {} heads, context {}: {} parameters{}, {} in {}", model.layers, model.width,
      model.heads, model.context, format_count(static_cast<double>(model.parameters())),
      model.lora.rank == 0 ? ""
                           : fmt::format(" ({} of adapters are trained)",
                                         format_count(static_cast<double>(model.trained_parameters()))),
      ingot::name(config.precision.compute), matmul_engine(config.precision.compute, config.train.device)));
  const DataShard& data_shard = layout.data_shard;
  if (run_.world.size() > 1)
    console.line(fmt::format("ranks {}: {}; each computes {} of a step's {} x {} sequences, {} at a time",
                             run_.world.size(), config.parallel.to_string(),
                             data_shard.micros(config.train.grad_accum) * data_shard.batch_size,
                             config.train.grad_accum, config.train.batch_size, data_shard.batch_size));
  if (const auto& pipeline = layout.executor->pipeline()) console.line("stages " + pipeline->layout);
  console.line("data " + run_.data.summary);
  if (!run_.data.warning.empty()) console.warning(run_.data.warning);
  console.line("optimizer " + run_.trainer.state().optimizer.summary());
  console.line(memory_line(run_.trainer));
  if (config.activations.policy == RecomputePolicy::kAuto)
    console.line("computed again in backward: " + layout.executor->recompute().summary());
  console.line(fmt::format("ready after {} | run folder {}",
                           format_time(RunState::seconds_since(run_.times.start)),
                           run_.folder.path().string()));
}

// Says once which products the device's library refused in the first step.
void Session::name_replaced_products() {
  if (std::exchange(has_named_products_, true)) return;
  const std::string refused = kernel_report(*run_.trainer.layout().stream).refused();
  if (!refused.empty())
    run_.console.line("note: cuBLASLt has no kernel for some products, which others replace: " + refused);
}

bool Session::is_asked_to_stop() {
  constexpr double kLong_s = 0.25;  // a step that takes longer is abandoned between two micro-batches
  std::array<double, 3> asked{run_.is_interrupted.load() ? 1.0 : 0.0, reporter_.last_step_s(),
                              saver_.is_busy() ? 1.0 : 0.0};
  run_.world.max(asked);
  is_step_long_ = asked[1] > kLong_s;
  is_any_saving_ = asked[2] > 0;
  return asked[0] > 0;
}

// Returns 0 for all tokens.
int64_t Session::eval_tokens() const {
  const RunConfig& config = run_.config;
  if (config.eval.max_tokens) return *config.eval.max_tokens;
  const int64_t context = config.model.context;
  return auto_eval_tokens(
      {.first_tokens = run_.plan.ramp().tokens_before(std::min(config.eval.every, run_.steps_done())),
       .trained_tokens = run_.loader.position() * context,
       .flops_per_token = run_.trainer.layout().model->config().flops_per_token(),
       .batch_tokens = config.train.batch_size * context,
       .text_tokens = run_.data.val.tokens() - 1});
}

// Returns false if an interruption ended the evaluation without a result.
bool Session::evaluate() {
  const int64_t step = run_.steps_done();
  RunState::Last& last = run_.last;
  if (last.eval_step == step) return true;
  const TimedPhase phase(run_, TimeLimit::Phase::kEvaluation);
  EvalWatch watch(
      run_.console, run_.world, [this] { return run_.is_interrupted.load(); },
      [this] { return RunState::seconds_since(run_.times.start); });
  const auto evaluate_stream = [this](const TokenSource& text, int64_t max_tokens,
                                      const EvalProgress& goes_on) {
    return run_.trainer.evaluate(text, max_tokens, goes_on);
  };
  const auto [result, losses] =
      evaluate_run(run_.data, eval_tokens(), evaluate_stream, [&](int64_t tokens, int64_t all) {
        run_.beat();
        return watch.go_on(tokens, all);
      });
  if (!result.is_complete) return false;
  last.eval_step = step;
  const bool is_best = result.loss < last.best_val_loss;
  last.best_val_loss = std::min(last.best_val_loss, result.loss);
  last.eval = result;
  last.mix_losses = losses;
  run_.console.eval({.step = step,
                     .loss = result.loss,
                     .bits_per_byte = result.bits_per_byte,
                     .top1 = result.top1,
                     .tokens = result.tokens,
                     .text_tokens = result.text_tokens,
                     .is_best = is_best});
  if (!losses.empty()) run_.console.line(losses_line(step, losses));
  std::vector<MetricsField> fields = {{"val_loss", result.loss},
                                      {"val_bits_per_byte", result.bits_per_byte},
                                      {"val_top1", result.top1},
                                      {"val_tokens", result.tokens}};
  for (const auto& [source, loss] : losses) fields.push_back({"val_loss/" + source, loss});
  run_.log.write(step, fields, true);
  saver_.evaluated(result.loss);
  write_aside([&] { write_loss_plot(run_.folder, run_.log.losses()); });
  return true;
}

void Session::sample() {
  const int64_t step = run_.steps_done();
  if (run_.last.sample_step == step || run_.config.sample.count == 0) return;
  run_.last.sample_step = step;
  const TimedPhase phase(run_, TimeLimit::Phase::kSampling);
  if (!run_.is_lead() && !run_.trainer.params().is_sharded()) return;
  std::string text;
  try {
    text = run_samples(run_.config, run_.trainer, *run_.data.tokenizer, run_.console);
  } catch (const Error& error) {
    // Ranks that share the weights all meet an error of these kinds at the same place.
    if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kUsage &&
        error.kind() != ErrorKind::kNumerics)
      throw;
    if (run_.is_lead())
      run_.console.warning(fmt::format("no sample at step {}: {}; training goes on", step, error.what()));
    return;
  }
  write_aside([&] {
    make_folders(run_.folder.samples());
    write_file(run_.folder.samples() / fmt::format("step-{:09}.txt", step), text);
    run_.log.write_samples(step, text);
  });
}

// Runs `write` on rank 0. If the file cannot be written, prints a warning and the run continues.
void Session::write_aside(const std::function<void()>& write) {
  if (!run_.is_lead()) return;
  try {
    write();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDisk) throw;
    run_.console.warning(error.what());
  }
}

// Returns how much of each source of a mixture the run has used until its last checkpoint.
std::vector<MixUse> Session::mix_use() const {
  std::vector<MixUse> uses;
  const MixOrder& mix = run_.sampler.mix();
  const int64_t context = run_.config.model.context, samples = run_.saved.tokens / context;
  for (const MixSource& source : run_.data.mix) {
    const auto i = static_cast<int64_t>(uses.size());
    const auto tokens = static_cast<double>(mix.taken(i, samples) * context);
    MixUse use{.source = source.name,
               .share = mix.share(i),
               .train_tokens = source.train_tokens,
               .epochs = tokens / static_cast<double>(source.train_tokens)};
    for (const auto& [name, loss] : run_.last.mix_losses)
      if (name == source.name) use.val_loss = loss;
    uses.push_back(std::move(use));
  }
  return uses;
}

void Session::write_summary(const std::string& status, const std::string& error, int exit_code) {
  RunSummary summary{.status = status,
                     .steps = run_.steps_done(),
                     .tokens = run_.saved.tokens,
                     .val_loss = {},
                     .val_bits_per_byte = {},
                     .wall_s = RunState::seconds_since(run_.times.start),
                     .peak_rss_bytes = peak_rss_bytes(),
                     .config_hash = config_hash(run_.config),
                     .product_peak_gflops = {},
                     .exit_code = exit_code,
                     .error = error};
  reporter_.fill(summary);
  if (const std::optional<EvalResult>& eval = run_.last.eval) {
    summary.val_loss = eval->loss;
    summary.val_bits_per_byte = eval->bits_per_byte;
    summary.eval_tokens = eval->tokens;
  }
  summary.mix = mix_use();
  if (const BestCheckpoint& best = run_.last.best; best.step >= 0) {
    summary.best_step = best.step;
    summary.best_val_loss = best.val_loss;
  }
  run_.folder.write_summary(summary);
  if (status != "running")
    run_.console.run({.status = status,
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
  run_.folder.heartbeat().beat_now(run_.steps_done(), run_.time_limit.phase(), run_.time_limit.seconds());
  try {
    run_.log.sync();
  } catch (...) {  // run.json may still be writable
  }
  try {
    write_summary("failed", error, exit_code);
  } catch (...) {
    return;
  }
  if (run_.is_lead())
    write_run_report(run_.folder, run_.config, {.status = "failed", .error = error}, run_.console);
}

// Returns nullopt if the run continues with another step.
std::optional<TrainOutcome::Status> Session::reason_to_end() {
  using enum TrainOutcome::Status;
  if (run_.is_finished()) return kCompleted;
  if (is_asked_to_stop()) return kInterrupted;
  const int64_t stop_at = run_.config.train.stop_at;
  if (stop_at > 0 && run_.steps_done() >= stop_at) return kStopped;
  return std::nullopt;
}

void Session::begin() {
  if (run_.is_lead()) run_.folder.write_config(run_.config);
  run_.log.write_config(run_.config);
  run_.beat();
  write_summary("running");
  say_hello();
  reporter_.report_arenas();
  run_.times.training_start = RunState::Clock::now();
  step_.begin();
  const bool needs_first_checkpoint =
      run_.config.guard.rolls_back() || run_.config.checkpoint.is_made_at_start;
  if (needs_first_checkpoint && !run_.resumed) saver_.save_or_fail();
  if (run_.last.is_eval_missing && run_.is_due(run_.config.eval.every)) evaluate();
}

// Makes steps, and whatever is due between them, until the run ends. Returns why it ended.
TrainOutcome::Status Session::train() {
  const RunConfig& config = run_.config;
  while (true) {
    if (const auto status = reason_to_end()) {
      if (!step_.drain() || !step_.is_sound()) continue;
      return *status;
    }
    saver_.go_on(is_any_saving_);
    const bool is_made = step_.make(is_step_long_);
    saver_.prune();
    name_replaced_products();
    if (!is_made || run_.is_finished()) continue;
    const bool saves = saver_.is_due();
    const bool evaluates = run_.is_due(config.eval.every), samples = run_.is_due(config.sample.every);
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
  run_.begin_phase(TimeLimit::Phase::kEnd);
  reporter_.report_bubble();
  if (const BestCheckpoint& best = run_.last.best; best.step >= 0)
    run_.console.line(fmt::format("best checkpoint: step {}, validation loss {:.4f}, in {}", best.step,
                                  best.val_loss, (run_.folder.checkpoints() / kBestName).string()));
  write_summary(name(status));
  if (status == kCompleted) run_.log.write_completed();
  const Documents* yardstick = status == kCompleted ? &run_.data.val_documents : nullptr;
  write_aside([&] {
    write_run_report(run_.folder, run_.config, {.status = name(status), .val_documents = yardstick},
                     run_.console);
  });
  return {.status = status,
          .steps = run_.steps_done(),
          .tokens = run_.saved.tokens,
          .final_eval = run_.last.eval.value_or(EvalResult{}),
          .checkpoint = run_.last.checkpoint};
}

TrainOutcome Session::run() {
  begin();
  return finish(train());
}

namespace {

TrainOutcome run_session(Session& session, const Mesh& mesh) {
  try {
    return session.run();
  } catch (const Error& error) {
    session.record_failure(error.what(), exit_code(error.kind()));
    if (mesh.world->size() == 1) throw;
    throw Error(fmt::format("after step {}: {}", session.steps_done(), error.what()), error.kind());
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
                          const std::atomic<bool>& is_interrupted, Mesh& mesh, OtherText other_text) {
  use_threads(config.train);
  if (const std::string warning = thread_warning(thread_use()); !warning.empty()) console.warning(warning);
  for (const std::string& setting : idle_settings(config)) console.warning(setting);
  if (!is_resume && folder.is_lead()) folder.write_config(config);  // first, for is_start_debris()
  console.open_log(folder.log());
  try {
    Session session(config, folder, is_resume, console, is_interrupted, mesh, other_text);
    return run_session(session, mesh);
  } catch (const InterruptedStart&) {
    TrainOutcome outcome;
    outcome.status = TrainOutcome::Status::kNotBegun;
    return outcome;
  }
}

}  // namespace ingot
