#include "ingot/profile/bench_precision.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "ingot/config/config_toml.h"
#include "ingot/core/median.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/profile/llama_f64.h"
#include "ingot/run/data/run_data.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

struct Recipe {
  const char* name;
  std::vector<const char*> settings;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {"f32", {}},
      {"f16", {"precision.compute=f16"}},
      {"f16, no loss scale", {"precision.compute=f16", "precision.loss_scale=1"}},
      {"bf16", {"precision.compute=bf16"}},
      {"bf16, f32 head", {"precision.compute=bf16", "head.precision=f32"}},
      {"bf16, fp8 head, static", {"precision.compute=bf16", "head.precision=fp8"}},
      {"bf16, fp8 head, current",
       {"precision.compute=bf16", "head.precision=fp8", "head.fp8_scaling=current"}},
      {"fp8 tensorwise", {"precision.compute=bf16", "precision.fp8=tensorwise"}},
      {"fp8 rowwise", {"precision.compute=bf16", "precision.fp8=rowwise"}},
      {"fp8 rowwise_gw_hp", {"precision.compute=bf16", "precision.fp8=rowwise_gw_hp"}},
      {"fp8 delayed", {"precision.compute=bf16", "precision.fp8=delayed"}},
      {"fp8 delayed, fp8 head", {"precision.compute=bf16", "precision.fp8=delayed", "head.precision=fp8"}},
  };
  return all;
}

RunConfig recipe_config(const Recipe& recipe, const PrecisionBenchOptions& options, int64_t seed) {
  ConfigBuilder builder;
  for (const char* setting : {"model.layers=4", "model.heads=4", "model.width=128", "model.context=64",
                              "data.tokenizer=byte", "train.batch_size=16", "optimizer.lr=3e-3"})
    builder.add_override(setting);
  for (const char* setting : recipe.settings) builder.add_override(setting);
  RunConfig config = builder.config();
  config.data.train = options.data;
  config.model.vocab = 256;
  config.train.steps = options.steps;
  config.train.seed = static_cast<uint64_t>(seed);
  config.validate();
  return config;
}

// Returns the gradient of one batch at the given f32 weights. Runs two passes, so that delayed scaling has
// seen its tensors.
std::vector<double> gradient_at(const RunConfig& config, ParamStore& weights, const MicroBatch& batch) {
  const Transformer model(config.model.resolved(), config.precision.compute, config.head,
                          config.precision.fp8);
  ResidentStore store(model.params(), config.precision.compute);
  Stream stream;
  for (int unit = 0; unit < model.params().units(); ++unit) {
    const Tensor &to = store.buffers(unit).master, &from = weights.buffers(unit).master;
    std::memcpy(to.data, from.data, to.bytes());
  }
  store.refresh_compute(stream);
  const int64_t B = batch.tokens.dim(0), T = batch.tokens.dim(1);
  Arena measure("activations plan");
  model.make_saved(measure, B, T);
  Arena activations("activations", measure.peak_bytes()), scratch("scratch", model.scratch_bytes(B, T, true));
  Transformer::Saved saved = model.make_saved(activations, B, T);
  Region region;
  const bool is_delayed = config.precision.fp8.recipe == Fp8Recipe::kDelayed;
  Fp8State fp8(model.fp8_tensors(), is_delayed ? config.precision.fp8.amax_history : 0,
               config.precision.fp8.margin);
  LayerContext ctx{
      .params = store, .region = region, .scratch = scratch, .stream = stream, .dropout = {}, .fp8 = &fp8};
  const LossScaler scaler =
      config.precision.compute == DType::f16 ? LossScaler(config.precision.loss_scale) : LossScaler();
  const double loss_factor = scaler.scale() / static_cast<double>(B * T);
  for (int pass = 0; pass < 2; ++pass) {
    for (int unit = 0; unit < model.params().units(); ++unit)
      std::memset(store.buffers(unit).grad.data, 0, store.buffers(unit).grad.bytes());
    fp8.begin_step();
    model.forward(ctx, batch, saved, static_cast<float>(loss_factor));
    model.backward(ctx, batch, saved);
    fp8.end_step();
  }
  std::vector<double> gradient;
  for (size_t id = 0; id < model.params().specs().size(); ++id) {
    const Tensor g = store.grad(static_cast<int>(id));
    for (int64_t i = 0; i < g.elements(); ++i)
      gradient.push_back(static_cast<double>(g.as<float>()[i]) / scaler.scale());
  }
  return gradient;
}

std::vector<double> gradient_in_f64(Trainer& trainer, const MicroBatch& batch) {
  std::vector<Tensor> weights;
  for (size_t id = 0; id < trainer.layout().model->params().specs().size(); ++id)
    weights.push_back(trainer.params().master(static_cast<int>(id)));
  std::vector<double> gradient;
  for (const std::vector<double>& part : llama_f64_gradients(*trainer.layout().model, weights, batch).of)
    gradient.insert(gradient.end(), part.begin(), part.end());
  return gradient;
}

double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

// Rises over 20 steps and then stays at 1.
double warmup(int64_t step) { return std::min(1.0, static_cast<double>(step + 1) / 20); }

// Runs one training; on the first seed also fills the row's other columns.
double train_once(const RunConfig& config, const RunData& data, Trainer& trainer, PrecisionBenchRow& row) {
  const Sampler sampler(SampleOrder::kRandom, config.train.seed, data.train.tokens(), config.model.context);
  Loader loader(data.train, sampler, {.shape = trainer.layout().batch_shape});
  trainer.initialise();
  std::vector<double> times;
  StepResult last;
  for (int64_t step = 0; step < config.train.steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    last = trainer.step(loader, {.lr = config.optimizer.lr * warmup(step)});
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  if (row.losses.empty()) {
    row.step_ms = median(times);
    const double elements = static_cast<double>(std::max<int64_t>(1, last.fp8.elements));
    row.saturated = static_cast<double>(last.fp8.saturated) / elements;
    row.underflowed = static_cast<double>(last.fp8.underflowed) / elements;
    for (const Trainer::ArenaUse& use : trainer.arenas()) row.bytes += use.bytes;
  }
  return trainer.evaluate(data.val, 65536).loss;
}

}  // namespace

std::vector<PrecisionBenchRow> bench_precision(const PrecisionBenchOptions& options,
                                               const std::function<void(const PrecisionBenchRow&)>& report) {
  const RunConfig first = recipe_config(recipes().front(), options, 1);
  const RunData data = load_run_data(first.data, std::nullopt, {}, {.context = first.model.context});
  std::unique_ptr<Trainer> reference;  // f32, seed 1, trained
  std::vector<double> reference_gradient;
  const Sampler sampler(SampleOrder::kRandom, 0, data.train.tokens(), first.model.context);
  std::vector<PrecisionBenchRow> rows;
  for (const Recipe& recipe : recipes()) {
    PrecisionBenchRow row;
    row.recipe = recipe.name;
    for (int64_t seed = 1; seed <= options.seeds; ++seed) {
      const RunConfig config = recipe_config(recipe, options, seed);
      auto trainer = std::make_unique<Trainer>(config, parallelize(config));
      row.losses.push_back(train_once(config, data, *trainer, row));
      if (!reference) reference = std::move(trainer);
    }
    Loader loader(data.train, sampler, {.shape = reference->layout().batch_shape});
    const Batch& taken = loader.next();
    const MicroBatch batch{.tokens = taken.tokens, .targets = taken.targets, .doc_start = taken.doc_start};
    if (reference_gradient.empty()) reference_gradient = gradient_in_f64(*reference, batch);
    row.gradient_error = relative_distance(
        gradient_at(recipe_config(recipe, options, 1), reference->params(), batch), reference_gradient);
    report(row);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ingot
