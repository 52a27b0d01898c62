// An optimizer that Ingot does not have, AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137), on the
// gradients that the trainer computes. It keeps a fast and a slow average of the gradients:
//   m1 = b1 m1 + (1 - b1) g,  m2 = b3 m2 + (1 - b3) g,  v = b2 v + (1 - b2) g^2
//   w = w - lr ((m1 / (1 - b1^t) + alpha m2) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay w)
// build/own_optimizer TEXT. To add a rule to the library itself, with its keys, checkpoints, kernels and
// shards, see "What an addition touches" in docs/architecture.md.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/core/parallel.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/data/run_data.h"
#include "ingot/train/trainer.h"

using namespace ingot;

namespace {

class AdEmaMix {
 public:
  explicit AdEmaMix(const TrainingStore& params) : list_(params.list()) {}

  // Moves every weight of this rank; g is multiplied by `scale`.
  void step(TrainingStore& params, double lr, double scale) {
    const std::vector<ParamShard> shards = params.shards();
    if (states_.empty())
      for (const ParamShard& shard : shards) states_.emplace_back(static_cast<size_t>(shard.elements()));
    ++t_;
    const double c1 = 1 - std::pow(kB1, t_), c2 = 1 - std::pow(kB2, t_);
    const double alpha = kAlpha * std::min(1.0, t_ / kWarmup);
    const double b3 = std::min(kB3, 1 - 1 / (1 + 0.1 * t_));  // a slow start of the slow average
    for (const ParamShard& shard : shards) {
      State* state = states_[static_cast<size_t>(shard.id)].data();
      float* w = shard.w.as<float>();
      const float* g = shard.grad.as<float>();
      const double decay = list_[shard.id].is_vector() ? 0 : kWeightDecay;
      parallel_for(shard.elements(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          State& s = state[i];
          const double gradient = scale * g[i];
          s.m1 = static_cast<float>(kB1 * s.m1 + (1 - kB1) * gradient);
          s.m2 = static_cast<float>(b3 * s.m2 + (1 - b3) * gradient);
          s.v = static_cast<float>(kB2 * s.v + (1 - kB2) * gradient * gradient);
          const double direction = (s.m1 / c1 + alpha * s.m2) / (std::sqrt(s.v / c2) + kEps);
          w[i] -= static_cast<float>(lr * (direction + decay * w[i]));
        }
      });
    }
  }

 private:
  struct State {
    float m1 = 0, m2 = 0, v = 0;
  };
  static constexpr double kB1 = 0.9, kB2 = 0.999, kB3 = 0.99, kAlpha = 2, kWarmup = 100, kEps = 1e-8,
                          kWeightDecay = 0.1;

  const ParamList& list_;
  std::vector<std::vector<State>> states_;  // by parameter
  double t_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw Error("usage: own_optimizer TEXT", ErrorKind::kUsage);
  ConfigBuilder builder;
  builder.add_source("tiny-llama");
  builder.add_texts("data.train", {argv[1]}, "TEXT");
  builder.add_override("data.tokenizer=byte");
  RunConfig config = builder.build();
  const RunData data = load_run_data(config.data, std::nullopt);
  config.model.vocab = data.tokenizer->vocab_size();
  Trainer trainer(config, parallelize(config));
  trainer.initialise();
  const Sampler sampler(config.data.order, config.train.seed, data.train.tokens(), config.model.context);
  Loader loader(data.train, sampler, {.shape = trainer.layout().batch_shape});

  AdEmaMix optimizer(trainer.params());
  double first = 0;
  for (int step = 0; step < 150; ++step) {
    trainer.submit(loader, {.micros = config.train.grad_accum});  // forward and backward
    const StepResult result = trainer.collect(loader);
    if (result.non_finite) throw Error("the loss is not finite", ErrorKind::kNumerics);
    optimizer.step(trainer.params(), 2e-3, result.grad_correction * result.clip);
    trainer.discard();  // zeroes the gradients without an update by the trainer's own optimizer
    trainer.params().refresh_compute(*trainer.layout().stream);  // what layers read, in bf16 models
    if (step == 0) first = result.loss;
    if (step % 25 == 0) std::printf("step %3d  loss %.4f\n", step, result.loss);
  }
  const double loss = trainer.evaluate(data.val, 0).loss;
  std::printf("validation loss %.4f, at the start %.4f\n", loss, first);
  return loss < 0.7 * first ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "own_optimizer: %s\n", error.what());
  return exit_code(error.kind());
}
