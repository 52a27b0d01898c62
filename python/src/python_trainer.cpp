#include "python_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ingot/comm/mesh.h"
#include "ingot/config/config_toml.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/memory/prepare_run.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/data/load_stream.h"
#include "ingot/run/eval/run_eval.h"
#include "ingot/run/pair_references.h"
#include "ingot/run/record/folder_lock.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/resume_rate.h"
#include "ingot/run/run_saver.h"
#include "ingot/run/start_model.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// Loads the texts, or without them the tokenizer and the validation text. tokenizer_json: of a checkpoint.
RunData load_data(const RunConfig& config, PythonData kind, const std::optional<std::string>& tokenizer_json,
                  const ChatSetup& chat) {
  if (kind == PythonData::kText) return load_run_data(config.data, tokenizer_json, {}, chat);
  const std::string& name = config.data.tokenizer;
  RunData data;
  if (tokenizer_json)
    data.tokenizer = parse_tokenizer(*tokenizer_json, "tokenizer.json");
  else if (name == "bpe" || name == "char")
    fail(ErrorKind::kUsage,
         "rows of token ids need the tokenizer that made them: set data.tokenizer to \"byte\", or to a "
         "tokenizer.json");
  else
    data.tokenizer = name == "byte" ? make_byte_tokenizer() : load_tokenizer(name);
  if (!config.data.val.empty())
    data.val = load_stream(config.data.val, config.data.text_field, *data.tokenizer);
  return data;
}

RunData load_python_data(const RunConfig& config, PythonData kind, const std::optional<fs::path>& checkpoint,
                         const std::optional<ResumeCheck>& resumed) {
  std::optional<std::string> tokenizer;
  ChatSetup chat{.context = config.model.context, .has_pairs = config.head.dpo_beta > 0};
  if (resumed && resumed->keeps_tokenizer()) {
    tokenizer = read_file(*checkpoint / "tokenizer.json");
    chat.side = read_side_files(*checkpoint);
  }
  RunData data = load_data(config, kind, tokenizer, chat);
  complete_side_files(*data.tokenizer, checkpoint ? *checkpoint : fs::path(config.train.init_from));
  return data;
}

// Returns the configuration with what follows from the data.
RunConfig completed(RunConfig config, const RunData& data, PythonData kind,
                    const std::optional<ResumeCheck>& resumed) {
  const Tokenizer& tokenizer = *data.tokenizer;
  if (resumed) config = resumed->with_vocab(config, tokenizer);
  if (config.model.vocab == 0) config.model.vocab = tokenizer.vocab_size();
  if (config.model.vocab < tokenizer.vocab_size())
    fail(ErrorKind::kUsage, "model.vocab = {} is too small for the tokenizer's {} tokens; leave it 0",
         config.model.vocab, tokenizer.vocab_size());
  if (kind == PythonData::kText)
    complete_epochs(config, sampler_of(config, data).windows_per_epoch());
  else if (config.train.epochs > 0)
    fail(ErrorKind::kUsage,
         "train.epochs counts passes over a text, and this trainer is given rows; set train.steps");
  return config;
}

// Programs are laid out for a number of threads, which is set here.
RunConfig prepared(const RunConfig& config, const Mesh& mesh) {
  static const int all = num_threads();  // of the machine, or OMP_NUM_THREADS
  set_num_threads(config.train.threads > 0 ? static_cast<int>(config.train.threads) : all);
  return prepare_run(config, mesh, memory_limits(config.train.device)).config;
}

std::optional<ResumeCheck> resume_check(const std::optional<fs::path>& checkpoint, const RunConfig& config,
                                        DataMismatch data_mismatch) {
  if (!checkpoint) return std::nullopt;
  return ResumeCheck(*checkpoint, std::nullopt, config, data_mismatch);
}

}  // namespace

RunConfig python_config(const std::string& source, const std::vector<std::string>& data,
                        const std::vector<std::string>& settings,
                        const std::optional<std::filesystem::path>& resumed_config, PythonData kind) {
  ConfigBuilder builder;
  if (!source.empty()) builder.add_source(source);
  if (!data.empty()) builder.add_texts("data.train", data, "data");
  for (const std::string& setting : settings) builder.add_override(setting, "set");
  complete_from_start(builder, resumed_config);
  const RunConfig& config = builder.build();
  if (kind == PythonData::kText && config.data.train.empty())
    fail(ErrorKind::kUsage, "no text to train on: give data=");
  check_layout(config, 1);
  return config;
}

fs::path python_checkpoint(const fs::path& folder) {
  if (path_exists(folder / "trainer.json")) {
    require_known_format(folder);
    for (const ManifestProblem& problem : verify_checkpoint(folder))
      fail(ErrorKind::kData, "{}: {} {}; load another checkpoint", folder.string(), problem.file,
           problem.what);
    return folder;
  }
  const fs::path all = path_exists(folder / "checkpoints") ? folder / "checkpoints" : folder;
  std::string damage;
  const auto found = newest_healthy_checkpoint(all, [&](const fs::path& path, const std::string& what) {
    damage += fmt::format("; {}: {}", path.string(), what);
  });
  if (!found) fail(ErrorKind::kData, "{}: there is no healthy checkpoint in it{}", folder.string(), damage);
  return found->path;
}

PythonTrainer::PythonTrainer(const RunConfig& config, PythonData kind,
                             const std::optional<fs::path>& checkpoint, DataMismatch data_mismatch)
    : resumed_(resume_check(checkpoint, config, data_mismatch)),
      data_(load_python_data(config, kind, checkpoint, resumed_)),
      config_(prepared(completed(config, data_, kind, resumed_), Mesh::alone())),
      trainer_(config_, parallelize(config_)),
      plan_(config_),
      guard_(config_.guard) {
  if (kind == PythonData::kText)
    loader_ = std::make_unique<Loader>(data_.train, sampler_of(config_, data_),
                                       LoaderConfig{.shape = trainer_.layout().batch_shape,
                                                    .workers = config_.data.workers,
                                                    .prefetch = config_.data.prefetch});
  threads_ = num_threads();
  start(checkpoint);
  resumed_.reset();
}

// Sets the weights, and the rest of the state if there is a checkpoint.
void PythonTrainer::start(const std::optional<fs::path>& checkpoint) {
  trainer_.initialise();
  const std::string& base = config_.train.init_from;
  const bool has_adapters = config_.model.lora.rank > 0;
  std::optional<uint64_t> fingerprint;
  if (!base.empty() && (!checkpoint || has_adapters)) {
    const StartWeights weights = read_start_weights(base, trainer_);
    fingerprint = weights.fingerprint;
    if (!checkpoint) warning_ = start_rate_warning(weights, config_);
  }
  const TextHashes text{
      .train = loader_ ? data_.train.content_hash() : 0,
      .val = data_.val.tokens() > 0 ? std::optional(data_.val.content_hash()) : std::nullopt};
  if (checkpoint) {
    resumed_->require_state(trainer_);
    state_ = load_checkpoint(*checkpoint, trainer_);
    if (has_adapters) require_base(*checkpoint, base, state_.base_fingerprint, *fingerprint);
    if (loader_) resumed_->require_text({.train = state_.data_hash, .val = state_.val_hash}, text);
    guard_.losses().set_values(state_.recent_losses);
    guard_.set_norms(state_.recent_norms, state_.is_norm_rise_reported);
  } else if (has_adapters) {
    state_.base_fingerprint = fingerprint;
  }
  if (checkpoint && data_.train.references())
    fail(ErrorKind::kUsage,
         "{}: the reference of a run with dpo.beta is in the run's folder; continue it with `ingot train "
         "--resume`",
         checkpoint->string());
  compute_references(data_, trainer_);
  state_.data_hash = text.train;
  state_.val_hash = text.val;
  if (loader_) loader_->seek(state_.sample_position);
  const int64_t from_text = loader_ ? state_.sample_position : 0;
  given_samples_ = std::max<int64_t>(0, state_.tokens / config_.model.context - from_text);
}

// OpenMP keeps the number of threads for each thread that calls it, and the trainer's memory is laid out for
// one number.
void PythonTrainer::use_threads() const {
  if (num_threads() != threads_) set_num_threads(threads_);
}

PythonTrainer::Turn::Turn(PythonTrainer& trainer)
    : trainer_(trainer), lock_(trainer.mutex_, std::defer_lock) {
  if (trainer.user_ == std::this_thread::get_id())
    fail(ErrorKind::kUsage, "a loss function cannot use the trainer that calls it");
  lock_.lock();
  trainer.user_ = std::this_thread::get_id();
}

RunPosition PythonTrainer::position() const {
  const int64_t samples = given_samples_ + (loader_ ? loader_->position() : 0);
  return plan_.position(steps_done(), samples * config_.model.context, 0);
}

bool PythonTrainer::is_finished() const { return plan_.is_finished(position()); }

GivenBatches PythonTrainer::given(const PythonRows& rows) const {
  return {trainer_.layout().batch_shape, rows.rows, rows.columns, rows.tokens, rows.targets};
}

// The function may have set the number of this thread's threads, as torch does.
CustomLoss PythonTrainer::custom(const CustomLoss::Function& function) const {
  const Layout& layout = trainer_.layout();
  return {layout.model->config(), layout.batch_shape.batch * layout.batch_shape.context,
          layout.stream->device,
          [this, function](const Tensor& logits, const Tensor& targets, const Tensor& d_logits) {
            const double loss = function(logits, targets, d_logits);
            use_threads();
            return loss;
          }};
}

PythonStep PythonTrainer::backward(const PythonOrder& order) {
  if (pending_)
    fail(ErrorKind::kUsage, "backward: call update() or discard() for the gradients of the step before");
  if (!order.batch && !loader_)
    fail(ErrorKind::kUsage, "this trainer has no text of its own: give the step a batch");
  use_threads();
  const auto begin = std::chrono::steady_clock::now();
  const RunPosition at = position();
  StepOrder wanted{.micros = plan_.micro_batches(at), .inputs = plan_.inputs(at)};
  if (order.lr) wanted.inputs.lr = *order.lr;
  if (!(wanted.inputs.lr >= 0 && std::isfinite(wanted.inputs.lr)))
    fail(ErrorKind::kUsage, "lr must be a number of at least 0, got {}", wanted.inputs.lr);
  std::optional<GivenBatches> own;
  if (order.batch) {
    if (config_.head.dpo_beta > 0)
      fail(ErrorKind::kUsage, "dpo.beta needs pairs of answers, which come from files: leave out the batch");
    own.emplace(given(*order.batch));
    wanted.micros = own->batches();
    if (wanted.micros > config_.train.grad_accum)
      fail(ErrorKind::kUsage,
           "the batch has {} rows, and a step takes at most train.batch_size * train.grad_accum = {} * {}; "
           "raise "
           "train.grad_accum to {}",
           order.batch->rows, config_.train.batch_size, config_.train.grad_accum, wanted.micros);
  }
  BatchSource& source = own ? static_cast<BatchSource&>(*own) : *loader_;
  std::optional<CustomLoss> loss;
  if (order.loss) wanted.loss = &loss.emplace(custom(order.loss));
  const int64_t first_sample = source.position();
  try {
    trainer_.submit(source, wanted);
    pending_ = trainer_.collect(source);
  } catch (...) {
    discard();
    source.seek(first_sample);
    throw;
  }
  if (own) given_samples_ += own->batches() * config_.train.batch_size;
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
  return {.step = steps_done() + 1, .result = *pending_, .lr = wanted.inputs.lr, .seconds = seconds.count()};
}

void PythonTrainer::update() {
  if (!pending_) fail(ErrorKind::kUsage, "update: call backward() first");
  use_threads();
  trainer_.update(*pending_);
  guard_.judge(*pending_);
  state_.tokens += pending_->step.order.micros * config_.train.batch_size * config_.model.context;
  pending_.reset();
}

void PythonTrainer::discard() {
  use_threads();
  trainer_.discard();
  pending_.reset();
}

PythonStep PythonTrainer::step(const PythonOrder& order) {
  const auto begin = std::chrono::steady_clock::now();
  PythonStep step = backward(order);
  if (pending_) update();
  step.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return step;
}

LossSums PythonTrainer::loss(const PythonRows& rows) {
  use_threads();
  GivenBatches batches = given(rows);
  LossSums sums;
  for (int64_t i = 0; i < batches.batches(); ++i) sums.add(trainer_.forward(batches.next()));
  return sums;
}

void PythonTrainer::logits(const PythonRows& rows, float* out) {
  use_threads();
  GivenBatches batches = given(rows);
  const int64_t T = config_.model.context, vocab = config_.model.vocab;
  int64_t row = 0;  // of the batch that is computed
  CustomLoss copy = custom([&](const Tensor& logits, const Tensor&, const Tensor&) {
    const int64_t end = std::min(rows.rows, row + config_.train.batch_size);
    for (int64_t r = row; r < end; ++r)
      for (int64_t t = 0; t < rows.columns; ++t)
        std::copy_n(logits.as<float>() + ((r - row) * T + t) * logits.dim(1), vocab,
                    out + (r * rows.columns + t) * vocab);
    return 0.0;
  });
  for (; row < rows.rows; row += config_.train.batch_size) trainer_.forward(batches.next(), &copy);
}

fs::path PythonTrainer::save(const fs::path& folder) {
  if (pending_) fail(ErrorKind::kUsage, "save: call update() or discard() for the gradients of backward()");
  use_threads();
  make_folders(folder);
  const FolderLock lock(folder);
  write_file(folder / "config.toml", config_toml(config_, ConfigDocs::kComments));
  state_.step = steps_done();
  state_.sample_position = loader_ ? loader_->position() : given_samples_;
  state_.recent_losses = guard_.losses().values();
  state_.recent_norms = guard_.norms();
  state_.is_norm_rise_reported = guard_.is_rise_reported();
  CheckpointStore store(folder / "checkpoints");
  return save_checkpoint(&store, trainer_, *data_.tokenizer, checkpoint_config(config_), state_);
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
  if (data_.val.tokens() == 0)
    fail(ErrorKind::kUsage, "there is no validation text: set data.val, or use loss() on rows of your own");
  use_threads();
  const auto evaluate_stream = [this](const TokenSource& text, int64_t tokens,
                                      const EvalProgress& should_continue) {
    return trainer_.evaluate(text, tokens, should_continue);
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
                          const std::atomic<bool>& is_stop_requested,
                          const std::function<void(std::string_view)>& say) {
  Mesh mesh = Mesh::alone();
  const RunConfig config = prepared(given, mesh);
  Console console(say, 0);
  RunFolder folder(out, is_resume);
  try {
    return run_training(config, folder, is_resume, console, is_stop_requested, mesh);
  } catch (...) {
    folder.remove_failed_start();
    throw;
  }
}

}  // namespace ingot
