// A layer that Ingot does not have, a causal convolution over time, with its backward pass, a check of its gradients, and a
// model around it that learns to repeat the token of three steps ago: build/own_layer
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "ingot/core/parallel.h"
#include "ingot/nn/param_store.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/ops/embedding.h"
#include "ingot/ops/matmul.h"
#include "ingot/optim/optimizer.h"

using namespace ingot;

namespace {

// y[b, t, c] = x[b, t, c] + sum_k w[k, c] x[b, t - k, c]; x and y are (B*T, C) f32.
class CausalConvolution {
 public:
  CausalConvolution(ParamList& params, int unit, int64_t taps, int64_t C)
      : taps_(taps),
        C_(C),
        w_(params.add({.name = "convolution.weight", .shape = {taps, C}, .init_std = 0.1, .unit = unit})) {}

  void forward(ParamStore& params, const Tensor& y, const Tensor& x, int64_t T) const {
    const float* w = params.weight(w_).as<float>();
    const float* from = x.as<float>();
    float* to = y.as<float>();
    parallel_for(x.dim(0), 16, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t c = 0; c < C_; ++c) to[n * C_ + c] = from[n * C_ + c];
        for (int64_t k = 0; k < taps_ && k <= n % T; ++k)
          for (int64_t c = 0; c < C_; ++c) to[n * C_ + c] += w[k * C_ + c] * from[(n - k) * C_ + c];
      }
    });
  }

  // dx = the gradient of x; the weight's gradient is added to. x is forward's input.
  void backward(ParamStore& params, const Tensor& dx, const Tensor& dy, const Tensor& x, int64_t T) const {
    const float* w = params.weight(w_).as<float>();
    float* dw = params.grad(w_).as<float>();
    const float *from = x.as<float>(), *d = dy.as<float>();
    float* to = dx.as<float>();
    const int64_t N = x.dim(0);
    parallel_for(N, 16, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t c = 0; c < C_; ++c) to[n * C_ + c] = d[n * C_ + c];
        for (int64_t k = 0; k < taps_ && n % T + k < T; ++k)
          for (int64_t c = 0; c < C_; ++c) to[n * C_ + c] += w[k * C_ + c] * d[(n + k) * C_ + c];
      }
    });
    // One thread sums each element in a fixed order, so the result does not depend on the number of threads.
    parallel_for(taps_ * C_, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k = i / C_, c = i % C_;
        float sum = 0;
        for (int64_t n = 0; n < N; ++n)
          if (n % T >= k) sum += d[n * C_ + c] * from[(n - k) * C_ + c];
        dw[i] += sum;
      }
    });
  }

  int weight() const { return w_; }

 private:
  int64_t taps_, C_;
  int w_;
};

constexpr int64_t kB = 16, kT = 32, kN = kB * kT, kC = 32, kV = 20, kDelay = 3;
constexpr int64_t kCounted = kB * (kT - kDelay);  // tokens that are predicted

// Embedding, convolution and head; each is a unit, whose weights lie together.
struct Model {
  ParamList params;
  int table = params.add({.name = "embedding.weight",
                          .shape = {kV, kC},
                          .role = ParamRole::kEmbedding,
                          .init_std = 0.5,
                          .unit = 0});
  CausalConvolution convolution{params, 1, kDelay + 1, kC};
  int head = params.add(
      {.name = "head.weight", .shape = {kV, kC}, .role = ParamRole::kHead, .init_std = 0.05, .unit = 2});
};

struct Activations {
  Arena arena{"activations", 4 << 20};
  Tensor x = arena.alloc(DType::f32, {kN, kC}), dx = arena.alloc(DType::f32, {kN, kC});
  Tensor y = arena.alloc(DType::f32, {kN, kC}), dy = arena.alloc(DType::f32, {kN, kC});
  Tensor logits = arena.alloc(DType::f32, {kN, kV}), losses = arena.alloc(DType::f32, {kN});
};

// Returns the mean loss of the predicted tokens, and adds its gradients.
double pass(const Model& model, ParamStore& store, Activations& a, const Tensor& tokens,
            const Tensor& targets, Stream& stream) {
  embedding_forward(a.x, tokens, store.weight(model.table), {}, kT, 0, stream);
  model.convolution.forward(store, a.y, a.x, kT);
  matmul(a.logits, a.y, store.weight(model.head), MatmulForm::kNT, false, stream);
  // The gradient takes the place of the logits.
  cross_entropy(a.losses, {}, a.logits, a.logits, targets, {.vocab = kV, .grad_scale = 1.0f / kCounted},
                stream);
  matmul(store.grad(model.head), a.logits, a.y, MatmulForm::kTN, true, stream);
  matmul(a.dy, a.logits, store.weight(model.head), MatmulForm::kNN, false, stream);
  model.convolution.backward(store, a.dx, a.dy, a.x, kT);
  embedding_backward(store.grad(model.table), {}, a.dx, tokens, kT, 0, stream);
  double sum = 0;
  for (int64_t n = 0; n < kN; ++n) sum += a.losses.as<float>()[n];
  return sum / kCounted;
}

// Random tokens; the target is the token of kDelay steps ago, if there is one.
void fill(const Tensor& tokens, const Tensor& targets, std::mt19937& random) {
  auto *token = tokens.as<int32_t>(), *target = targets.as<int32_t>();
  for (int64_t n = 0; n < kN; ++n) {
    token[n] = static_cast<int32_t>(random() % kV);
    target[n] = n % kT >= kDelay ? token[n - kDelay] : kIgnoreIndex;
  }
}

}  // namespace

int main() try {
  const Model model;
  ResidentStore store(model.params, DType::f32);
  init_params(store, /*seed=*/1);
  Activations activations;
  Arena batch("batch", 1 << 20);
  const Tensor tokens = batch.alloc(DType::i32, {kN}), targets = batch.alloc(DType::i32, {kN});
  std::mt19937 random(1);
  Stream stream;
  fill(tokens, targets, random);

  // Central differences of the loss for a few weights of the convolution.
  pass(model, store, activations, tokens, targets, stream);
  const std::vector<float> gradient(store.grad(model.convolution.weight()).as<float>(),
                                    store.grad(model.convolution.weight()).as<float>() + (kDelay + 1) * kC);
  float* w = store.master(model.convolution.weight()).as<float>();
  double largest = 0;
  for (const size_t i : {0u, 7u, 33u, 70u, 96u, 127u}) {
    const float before = w[i], h = 0.02f;
    w[i] = before + h;
    const double above = pass(model, store, activations, tokens, targets, stream);
    w[i] = before - h;
    const double below = pass(model, store, activations, tokens, targets, stream);
    w[i] = before;
    largest = std::max(largest, std::abs((above - below) / (2 * static_cast<double>(h)) - gradient[i]));
  }
  std::printf("largest difference between gradient and central differences: %.1e\n", largest);

  std::vector<OptimParam> trained;
  for (const ParamShard& shard : store.shards()) {
    const ParamSpec& spec = model.params[shard.id];
    OptimParam param{.name = spec.name, .role = spec.role, .shape = spec.shape};
    param.w = shard.w;
    param.g = shard.grad;
    trained.push_back(param);
    for (int64_t i = 0; i < shard.elements(); ++i) shard.grad.as<float>()[i] = 0;
  }
  Optimizer adamw(OptimizerConfig{}, trained);
  double loss = 0;
  for (int step = 0; step < 300; ++step) {
    fill(tokens, targets, random);
    loss = pass(model, store, activations, tokens, targets, stream);
    adamw.step({.lr = 1e-2}, /*grad_scale=*/1, stream);  // zeroes the gradients
    if (step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, loss);
  }
  std::printf("last loss %.4f; a guess has %.4f\n", loss, std::log(static_cast<double>(kV)));
  return largest < 1e-4 && loss < 0.2 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "own_layer: %s\n", error.what());
  return exit_code(error.kind());
}
