// An operation that Ingot does not have, a causal convolution over time, in every block of a model that it
// has: build/own_layer Its backward pass, memory, recomputation and the trainer follow from the two classes
// below. A window of one token takes the other tokens away from attention, so that the model learns only what
// the convolution brings.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/config/run_plan.h"
#include "ingot/core/parallel.h"
#include "ingot/nn/program/check.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/train/trainer.h"

using namespace ingot;

namespace {

constexpr int64_t kTaps = 3;  // a token sees itself and two before it

// y[b, t, c] = x[b, t, c] + sum_k w[k, c] x[b, t - k, c]; x and y are (B*T, C) f32, w (taps, C).
void convolve(const Tensor& y, const Tensor& x, const Tensor& w, int64_t T) {
  const int64_t C = x.dim(1);
  parallel_for(x.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float* to = y.as<float>() + n * C;
      const float* from = x.as<float>() + n * C;
      for (int64_t c = 0; c < C; ++c) to[c] = from[c];
      for (int64_t k = 0; k < kTaps && k <= n % T; ++k)
        for (int64_t c = 0; c < C; ++c) to[c] += w.as<float>()[k * C + c] * from[c - k * C];
    }
  });
}

// dx = the gradient of x; dw is added to.
void convolve_backward(const Tensor& dx, const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& w,
                       int64_t T) {
  const int64_t N = x.dim(0), C = x.dim(1);
  parallel_for(N, 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float* to = dx.as<float>() + n * C;
      const float* d = dy.as<float>() + n * C;
      for (int64_t c = 0; c < C; ++c) to[c] = d[c];
      for (int64_t k = 0; k < kTaps && n % T + k < T; ++k)
        for (int64_t c = 0; c < C; ++c) to[c] += w.as<float>()[k * C + c] * d[c + k * C];
    }
  });
  // One thread sums each element in a fixed order, so the result does not depend on the number of threads.
  parallel_for(kTaps * C, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = i / C, c = i % C;
      float sum = 0;
      for (int64_t n = 0; n < N; ++n)
        if (n % T >= k) sum += dy.as<float>()[n * C + c] * x.as<float>()[(n - k) * C + c];
      dw.as<float>()[i] += sum;
    }
  });
}

// in: dy and x; out: dx.
class ConvolutionBackward final : public Primitive {
 public:
  std::string name() const override { return "convolution_backward"; }
  void run(const Operands& t) const override {
    convolve_backward(t.out(0), t.gradient(0), t.in(0), t.in(1), t.weight(0), t.args.batch->tokens.dim(1));
  }
  void check(const PlacedOp& p) const override {
    p.expect_in(0, Placement::kWhole);  // a rank has all tokens of a sequence
    p.contributes(0, Contribution::kWhole);
  }
};

class Convolution final : public Primitive {
 public:
  std::string name() const override { return "convolution"; }
  void run(const Operands& t) const override {
    convolve(t.out(0), t.in(0), t.weight(0), t.args.batch->tokens.dim(1));
  }
  void check(const PlacedOp& p) const override { p.expect_in(0, Placement::kWhole); }
  void backward(BackwardRule& rule) const override {
    const ValueId dx = rule.gradient_like(rule.op.in[0]);
    Op& made = rule.b.add(std::make_shared<ConvolutionBackward>(), {rule.d(0), rule.op.in[0]}, {dx});
    made.weights = made.gradients = rule.op.weights;
    rule.give(0, dx);
  }
};

// The convolution at the end of every block.
BlockExtension convolutions() {
  return {.declare =
              [](ParamList& params, const ModelConfig& model, int unit, const std::string& prefix) {
                return std::vector<int>{params.add({.name = prefix + "convolution.weight",
                                                    .shape = {kTaps, model.width},
                                                    .init = Init::kNormal,
                                                    .init_std = 0.1,
                                                    .unit = unit})};
              },
          .add =
              [](Builder& b, ValueId x, const std::vector<int>& params) {
                const ValueId y = b.value("convolved", b[x].dtype, b[x].shape, b[x].placement, Role::kStream);
                b.add(std::make_shared<Convolution>(), {x}, {y}).weights = params;
                return y;
              }};
}

// The next token follows from the one two places before it, but for one token of 17.
TokenSource text() {
  std::mt19937 random(1);
  std::vector<uint16_t> tokens(20000);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<uint16_t>(i < 3 || i % 17 == 0 ? random() % 61 : (tokens[i - 3] * 5 + 3) % 61);
  TokenSource source;
  source.add(tokens);
  return source;
}

RunConfig configuration(const char* dropout) {
  ConfigBuilder builder;
  builder.add_source("tiny-llama");
  for (const char* key : {"model.vocab=61", "model.window=1", "model.context=32", "train.batch_size=16",
                          "train.steps=400", "optimizer.lr=1e-2", "activations.policy=block", dropout})
    builder.add_override(key);
  return builder.build();
}

// Trains the model, and returns its loss on the text.
double train(const BlockExtension& extension) {
  const RunConfig config = configuration("model.dropout=0");
  Trainer trainer(config, parallelize(config, Backing::kMemory, extension));
  trainer.initialise();
  const TokenSource source = text();
  const Sampler sampler(SampleOrder::kRandom, /*seed=*/1, source.tokens(), config.model.context);
  Loader loader(source, sampler, {.shape = trainer.layout().batch_shape});
  const RunPlan plan(config);
  for (int64_t step = 0; step < config.train.steps; ++step)
    trainer.step(loader, plan.inputs(plan.position(step, loader.position() * config.model.context, 0)));
  return trainer.evaluate(source, 0).loss;
}

// Returns the largest difference between the gradients of a few weights of the convolutions and central
// differences.
double gradient_error() {
  const ModelConfig config = configuration("model.dropout=0").model.resolved();
  const Transformer model(config, DType::f32, {}, {}, {}, convolutions());
  constexpr int64_t kB = 2;
  const int64_t T = config.context;
  ResidentStore store(model.params(), DType::f32);
  init_params(store, /*seed=*/1);
  Arena measure("measure");
  model.make_saved(measure, kB, T);
  Arena activations("activations", measure.peak_bytes()),
      scratch("scratch", model.scratch_bytes(kB, T, true));
  const Transformer::Saved saved = model.make_saved(activations, kB, T);
  std::vector<int32_t> tokens(kB * T), targets(kB * T);
  for (size_t n = 0; n < tokens.size(); ++n) {
    tokens[n] = static_cast<int32_t>((n * 7 + n / 5) % 61);
    targets[n] = static_cast<int32_t>((n * 11 + 3) % 61);
  }
  const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {kB, T}),
                         .targets = Tensor(targets.data(), DType::i32, {kB, T}),
                         .doc_start = {}};
  Region region;
  Stream stream;
  LayerContext ctx{.params = store, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  model.forward(ctx, batch, saved, 1.0f);
  model.backward(ctx, batch, saved);
  double largest = 0;
  for (int id = 0; id < static_cast<int>(model.params().specs().size()); ++id) {
    if (model.params()[id].name.find("convolution") == std::string::npos) continue;
    float* w = store.master(id).as<float>();
    for (const int64_t i : {int64_t{0}, int64_t{7}, config.width + 5, 2 * config.width + 9}) {
      const double gradient = static_cast<double>(store.grad(id).as<float>()[i]);
      const float before = w[i], h = 0.01f;
      w[i] = before + h;
      const double above = model.forward(ctx, batch, saved, 0).loss;
      w[i] = before - h;
      const double below = model.forward(ctx, batch, saved, 0).loss;
      w[i] = before;
      const double measured = (above - below) / (2 * static_cast<double>(h));
      largest = std::max(largest, std::abs(measured - gradient));
    }
  }
  return largest;
}

}  // namespace

int main() try {
  const double error = gradient_error();
  std::printf("largest difference between gradient and central differences: %.1e\n", error);
  const double without = train({}), with = train(convolutions());
  std::printf("loss %.4f with the convolutions, %.4f without; a guess has %.4f\n", with, without,
              std::log(61.0));
  return error < 1e-3 && with < 1 && without > 4 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "own_layer: %s\n", error.what());
  return exit_code(error.kind());
}
