#include "python_trainer.h"

#include <chrono>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/comm/mesh.h"
#include "ingot/config/config_toml.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/memory/prepare_run.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/eval/run_eval.h"
#include "ingot/run/pair_references.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/resume_rate.h"
#include "ingot/run/start_model.h"

namespace ingot {
namespace {

// Returns the configuration with what follows from the data.
RunConfig completed(RunConfig config, const RunData& data) {
  const Tokenizer& tokenizer = *data.tokenizer;
  if (config.model.vocab == 0) config.model.vocab = tokenizer.vocab_size();
  if (config.model.vocab < tokenizer.vocab_size())
    fail(ErrorKind::kUsage, "model.vocab = {} is too small for the tokenizer's {} tokens; leave it 0",
         config.model.vocab, tokenizer.vocab_size());
  complete_epochs(config, sampler_of(config, data).windows_per_epoch());
  return config;
}

// Programs are laid out for a number of threads, which is set here.
RunConfig prepared(const RunConfig& config, const Mesh& mesh) {
  static const int all = num_threads();  // of the machine, or OMP_NUM_THREADS
  set_num_threads(config.train.threads > 0 ? static_cast<int>(config.train.threads) : all);
  return prepare_run(config, mesh, memory_limits(config.train.device)).config;
}

}  // namespace

RunConfig python_config(const std::string& source, const std::vector<std::string>& data,
                        const std::vector<std::string>& settings,
                        const std::optional<std::filesystem::path>& resumed_config) {
  ConfigBuilder builder;
  builder.add_source(source);
  if (!data.empty()) builder.add_texts("data.train", data, "data");
  for (const std::string& setting : settings) builder.add_override(setting, "set");
  complete_from_start(builder, resumed_config);
  const RunConfig& config = builder.build();
  if (config.data.train.empty()) fail(ErrorKind::kUsage, "no text to train on: give data=");
  check_layout(config, 1);
  return config;
}

PythonTrainer::PythonTrainer(const RunConfig& config)
    : data_(load_run_data(config.data, std::nullopt, {},
                          {.context = config.model.context, .has_pairs = config.head.dpo_beta > 0})),
      config_(prepared(completed(config, data_), Mesh::alone())),
      trainer_(config_, parallelize(config_)),
      sampler_(sampler_of(config_, data_)),
      loader_(data_.train, sampler_,
              {.shape = trainer_.layout().batch_shape,
               .workers = config_.data.workers,
               .prefetch = config_.data.prefetch}),
      plan_(config_) {
  threads_ = num_threads();
  trainer_.initialise();
  if (!config_.train.init_from.empty())
    warning_ = start_rate_warning(read_start_weights(config_.train.init_from, trainer_), config_);
  compute_references(data_, trainer_);
}

// OpenMP keeps the number of threads for each thread that calls it, and the trainer's memory is laid out for
// one number.
void PythonTrainer::use_threads() const {
  if (num_threads() != threads_) set_num_threads(threads_);
}

RunPosition PythonTrainer::position() const {
  return plan_.position(steps_done(), loader_.position() * config_.model.context, 0);
}

bool PythonTrainer::is_finished() const { return plan_.is_finished(position()); }

PythonStep PythonTrainer::backward() {
  if (pending_)
    fail(ErrorKind::kUsage, "backward: call update() or discard() for the gradients of the step before");
  use_threads();
  const auto begin = std::chrono::steady_clock::now();
  const RunPosition at = position();
  const StepOrder order{.micros = plan_.micro_batches(at), .inputs = plan_.inputs(at)};
  trainer_.submit(loader_, order);
  pending_ = trainer_.collect(loader_);
  if (pending_->non_finite || pending_->lowered_scale) {
    const StepResult result = *pending_;
    discard();
    if (result.non_finite)
      fail(ErrorKind::kNumerics, "step {}: {}; the weights are unchanged", steps_done() + 1,
           result.non_finite->text());
    return {
        .step = steps_done(), .result = result, .lr = 0};  // f16 tries the next batch with a lower loss scale
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return {.step = steps_done() + 1, .result = *pending_, .lr = order.inputs.lr, .seconds = seconds.count()};
}

void PythonTrainer::update() {
  if (!pending_) fail(ErrorKind::kUsage, "update: call backward() first");
  use_threads();
  trainer_.update(*pending_);
  pending_.reset();
}

void PythonTrainer::discard() {
  use_threads();
  trainer_.discard();
  pending_.reset();
}

PythonStep PythonTrainer::step() {
  const auto begin = std::chrono::steady_clock::now();
  PythonStep step = backward();
  if (pending_) update();
  step.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return step;
}

TrainingStore& PythonTrainer::params() {
  if (config_.precision.master != Masters::kF32)
    fail(ErrorKind::kUsage, "weights and gradients need f32 masters: set precision.master to f32");
  if (config_.train.device != Device::kCpu)
    fail(ErrorKind::kUsage, "weights and gradients can be seen only with train.device = \"cpu\"");
  return trainer_.params();
}

void PythonTrainer::weights_changed() {
  use_threads();
  params().refresh_compute(*trainer_.layout().stream);
}

EvalResult PythonTrainer::evaluate(int64_t max_tokens) {
  use_threads();
  const auto evaluate_stream = [this](const TokenSource& text, int64_t tokens, const EvalProgress& goes_on) {
    return trainer_.evaluate(text, tokens, goes_on);
  };
  return evaluate_run(data_, max_tokens, evaluate_stream).result;
}

std::string PythonTrainer::generate(const std::string& prompt, int64_t tokens, const SampleConfig& config,
                                    uint64_t seed) {
  use_threads();
  Layout& layout = trainer_.layout();
  if (!generator_)
    generator_ =
        std::make_unique<Generator>(*layout.model, trainer_.params(), *layout.region, *layout.stream);
  std::string text;
  generate_text(*generator_, *data_.tokenizer, prompt, tokens, config, seed,
                [&](std::string_view more) { text += more; });
  return text;
}

TrainOutcome python_train(const RunConfig& given, const std::string& out, bool is_resume,
                          const std::atomic<bool>& is_told_to_end,
                          const std::function<void(std::string_view)>& say) {
  Mesh mesh = Mesh::alone();
  const RunConfig config = prepared(given, mesh);
  Console console(say, 0);
  RunFolder folder(out, is_resume);
  try {
    return run_training(config, folder, is_resume, console, is_told_to_end, mesh);
  } catch (...) {
    folder.remove_failed_start();
    throw;
  }
}

}  // namespace ingot
