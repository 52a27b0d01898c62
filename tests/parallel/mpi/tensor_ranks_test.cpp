// Compares tensor parallelism on several ranks with one rank that has the whole model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "ingot/core/philox.h"
#include "ingot/nn/transformer.h"
#include "ingot/ops/cross_entropy.h"
#include "ingot/parallel/tensor.h"
#include "tests/comm/mpi/ranks_main.h"
#include "tests/nn/infer_one.h"
#include "tests/nn/small_model.h"

namespace ingot {
namespace {

constexpr int64_t kB = 2, kVocab = 61;

ModelConfig llama() {
  ModelConfig c = {.layers = 3,
                   .heads = 16,
                   .kv_heads = 8,
                   .head_dim = 4,
                   .width = 32,
                   .ffn = 48,
                   .context = 16,
                   .vocab = kVocab,
                   .dropout = 0.1};
  return c.resolved();
}

ModelConfig gpt2() {
  ModelConfig c = test::gpt2_style(llama());
  c.heads = c.kv_heads = 8;
  c.cap = {.kind = LogitCap::kTanh, .a = 15};
  return c.resolved();
}

ModelConfig speedrun() {
  ModelConfig c = test::speedrun_style(llama());
  c.dropout = 0;
  c.cap = {.kind = LogitCap::kSigmoid, .a = 30, .b = 0, .c = 7.5};
  return c.resolved();
}

// A SwiGLU model with biases in every kind of linear.
ModelConfig biased() {
  ModelConfig c = llama();
  c.has_bias = true;
  c.is_tied = false;
  return c.resolved();
}

// The extras of LLaMA's relatives: biases of q, k and v, gains in QK-norm, a window, a block that does not
// rotate.
ModelConfig relative() {
  ModelConfig c = llama();
  c.has_qkv_bias = c.has_qk_norm = c.has_qk_norm_gain = true;
  c.window = 5;
  c.nope_every = 2;
  return c.resolved();
}

// Norms after attention and MLP, and biases that those norms see.
ModelConfig norms_after() {
  ModelConfig c = llama();
  c.norm_place = NormPlace::kAfter;
  c.has_bias = true;
  return c.resolved();
}

// Returns a model whose blocks read everything that those of the speed run read in addition to the residual
// stream.
ModelConfig whole_speedrun() {
  ModelConfig c = llama();
  c.kv_heads = c.heads;
  c = test::whole_speedrun_style(c);
  c.cap = {.kind = LogitCap::kSigmoid, .a = 30, .b = 0, .c = 7.5};
  return c.resolved();
}

// Attention and MLP that read one norm, with half of the channels rotated.
ModelConfig gpt_j() {
  ModelConfig c = llama();
  c.has_parallel_residual = true;
  c.rope_dims = c.head_dim / 2;
  c.has_bias = true;
  return c.resolved();
}

struct Case {
  ModelConfig model = llama();
  DType compute = DType::f32;
  HeadConfig head = {};
  Fp8LinearConfig fp8 = {};
  RecomputeConfig recompute = {};
};

// One rank's shards of a model, with the memory for a micro-batch.
class Share {
 public:
  Share(const Case& setup, const TensorParallel& share, Region& region)
      : setup_(setup),
        region_(region),
        model_(setup.model, setup.compute, setup.head, setup.fp8, share),
        store_(model_.params(), setup.compute),
        fp8_(model_.fp8_tensors(), 4, 0),
        plan_(recompute_plan(setup.recompute, setup.model.layers)),
        scratch_("scratch", model_.scratch_bytes(kB, T(), plan_, model_.all_units(), Device::kCpu)),
        activations_("activations", activation_bytes()) {
    init_params(store_, 11);
    // Scales the weights to the size that training gives them, where the model's function is far from linear.
    for (const UnitBuffers& unit : units())
      for (int64_t i = 0; i < unit.master.elements(); ++i) unit.master.as<float>()[i] *= 5;
    for (int p = 0; p < std::ssize(model_.params().specs()); ++p) disturb_vector(p);
    store_.refresh_compute(stream_);
  }

  LossSums run() {
    const int64_t N = kB * T();
    std::vector<int32_t> tokens, targets, starts;
    for (int64_t n = 0; n < N; ++n) {
      tokens.push_back(draw(n));
      targets.push_back(n % 7 == 3 ? kIgnoreIndex : draw(1000 + n));
      starts.push_back(n % T() >= 6 ? 6 : 0);
    }
    const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {kB, T()}),
                           .targets = Tensor(targets.data(), DType::i32, {kB, T()}),
                           .doc_start = Tensor(starts.data(), DType::i32, {kB, T()})};
    activations_.release_to(0);
    Transformer::Saved saved = model_.make_saved(activations_, kB, T(), plan_);
    LayerContext ctx = context();
    ctx.dropout = {.p = static_cast<float>(setup_.model.dropout), .seed = 3, .step = 7, .first_row = 2 * T()};
    ctx.fp8 = model_.fp8_tensors().empty() ? nullptr : &fp8_;
    const LossSums sums = model_.forward(ctx, batch, saved, 0.5f, 8);
    model_.backward(ctx, batch, saved);
    losses_.assign(saved.in_training.losses.as<float>(), saved.in_training.losses.as<float>() + N);
    return sums;
  }

  // Returns the logits after a prompt of 8 tokens and after four more calls, with 5 tokens in all.
  std::vector<float> generate() {
    Arena caches_arena("caches", size_t{1} << 20),
        scratch("scratch", model_.infer_scratch_bytes(8, {1, T()}));
    OneSequence sequence{model_.make_caches(caches_arena, 1, T())};
    std::vector<float> all, logits;
    LayerContext ctx{
        .params = store_, .region = region_, .scratch = scratch, .stream = stream_, .dropout = {}};
    int64_t next = 0;
    for (int64_t n : {8, 1, 1, 2, 1}) {
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < n; ++i) tokens.push_back(draw(next++));
      sequence.append(model_, ctx, tokens, logits);
      all.insert(all.end(), logits.begin(), logits.begin() + kVocab);
    }
    return all;
  }

  const Transformer& model() const { return model_; }
  ResidentStore& store() { return store_; }
  Fp8State& fp8() { return fp8_; }
  const std::vector<float>& losses() const { return losses_; }
  std::vector<UnitBuffers> units() {
    std::vector<UnitBuffers> all;
    for (int u = 0; u < model_.params().units(); ++u) all.push_back(store_.buffers(u));
    return all;
  }
  std::vector<float> grads() {
    std::vector<float> all;
    for (const UnitBuffers& unit : units())
      all.insert(all.end(), unit.grad.as<float>(), unit.grad.as<float>() + unit.grad.elements());
    return all;
  }

 private:
  int64_t T() const { return setup_.model.context; }
  size_t activation_bytes() const {
    Arena measure("plan");
    model_.make_saved(measure, kB, T(), plan_);
    return measure.peak_bytes();
  }
  LayerContext context() {
    return {.params = store_, .region = region_, .scratch = scratch_, .stream = stream_, .dropout = {}};
  }
  static int32_t draw(int64_t i) {
    const RandomKey key{.seed = 9, .purpose = Purpose::kSample, .stream = 0, .step = 0};
    return static_cast<int32_t>(random_word(key, static_cast<uint64_t>(i)) % kVocab);
  }
  // Makes the elements of norm weights and biases differ from each other.
  void disturb_vector(int p) {
    const ParamSpec& spec = model_.params()[p];
    if (!spec.is_vector()) return;
    const RandomKey key{.seed = 4, .purpose = Purpose::kInit, .stream = static_cast<uint32_t>(p), .step = 0};
    const Tensor w = store_.master(p);
    for_each_range(spec, [&](int64_t here, int64_t full, int64_t count) {
      for (int64_t i = 0; i < count; ++i)
        w.as<float>()[here + i] = (spec.role == ParamRole::kNorm ? 1.0f : 0.0f) +
                                  0.2f * random_normal(key, static_cast<uint64_t>(full + i));
    });
  }

  Case setup_;
  Region& region_;
  Transformer model_;
  ResidentStore store_;
  Fp8State fp8_;
  RecomputePlan plan_;
  Arena scratch_, activations_;
  Stream stream_;
  std::vector<float> losses_;
};

// Returns the RMS error of this rank's shard of a parameter's gradient, relative to the RMS of the
// full gradient.
double gradient_error(Share& own, Share& whole, int p) {
  const float *got = own.store().grad(p).as<float>(), *want = whole.store().grad(p).as<float>();
  double difference = 0, size = 0;
  int64_t elements = 0;
  for_each_range(own.model().params()[p], [&](int64_t here, int64_t full, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      difference += std::pow(static_cast<double>(got[here + i]) - static_cast<double>(want[full + i]), 2);
    elements += count;
  });
  const int64_t all = whole.store().grad(p).elements();
  for (int64_t i = 0; i < all; ++i) size += std::pow(static_cast<double>(want[i]), 2);
  return std::sqrt(difference / static_cast<double>(elements)) /
         std::sqrt(size / static_cast<double>(all) + 1e-30);
}

void expect_equal_on_all_ranks(std::vector<float> values, const std::string& what) {
  std::vector<float> lowest = values;
  const Shape shape{std::ssize(values)};
  world->all_reduce("lowest", Tensor(lowest.data(), DType::f32, shape), ReduceOp::kMin);
  world->all_reduce("highest", Tensor(values.data(), DType::f32, shape), ReduceOp::kMax);
  EXPECT_EQ(lowest, values) << what;
}

// Sums run over the ranks instead of within one rank. Each is off by a few roundings, which pass through
// a dozen layers.
constexpr double kF32Loss = 1e-6, kF32Gradient = 64 * 0x1p-24;

void expect_one_rank_results(const Case& setup, bool splits_tokens, double loss_error, double gradient_limit,
                             const std::string& what) {
  Region alone;
  Share whole(setup, {}, alone);
  TensorRegion region(*world);
  Share own(setup, tensor_parallel(*world, splits_tokens), region);
  const LossSums want = whole.run(), got = own.run();
  EXPECT_NEAR(got.loss, want.loss, loss_error * want.loss) << what;
  EXPECT_EQ(got.counted, want.counted) << what;
  if (setup.compute == DType::f32 && setup.fp8.recipe == Fp8Recipe::kNone &&
      setup.head.precision == HeadPrecision::kCompute) {
    EXPECT_EQ(got.correct, want.correct) << what;
    EXPECT_NEAR(got.raw.objective, want.raw.objective, 1e-6 * want.raw.objective) << what;
    EXPECT_NEAR(got.raw.ce, want.raw.ce, 1e-6 * want.raw.ce) << what;
  }
  EXPECT_EQ(got.raw.tokens, want.raw.tokens) << what;
  expect_equal_on_all_ranks(own.losses(), what + ": losses");
  for (int p = 0; p < std::ssize(own.model().params().specs()); ++p) {
    const ParamSpec& spec = own.model().params()[p];
    EXPECT_LE(gradient_error(own, whole, p), gradient_limit) << what << ": " << spec.name;
    if (spec.is_sharded()) continue;
    const Tensor grad = own.store().grad(p);
    expect_equal_on_all_ranks({grad.as<float>(), grad.as<float>() + grad.elements()},
                              what + ": " + spec.name);
  }
  if (world->size() > 1) return;
  EXPECT_EQ(got.loss, want.loss) << what;
  EXPECT_EQ(own.grads(), whole.grads()) << what << ": a group of one is the identity";
}

struct Style {
  const char* name;
  ModelConfig config;
};

std::vector<Style> styles() {
  return {{"llama", llama()},
          {"gpt2", gpt2()},
          {"speedrun", speedrun()},
          {"biased", biased()},
          {"relative", relative()},
          {"norms_after", norms_after()},
          {"whole_speedrun", whole_speedrun()},
          {"gpt_j", gpt_j()}};
}

TEST(Tensor, LossAndGradientsEqualThoseOfOneRank) {
  for (const Style& style : styles())
    for (bool splits_tokens : {false, true})
      expect_one_rank_results({.model = style.config}, splits_tokens, kF32Loss, kF32Gradient,
                              style.name + std::string(splits_tokens ? ", tokens split" : ""));
}

TEST(Tensor, Bf16CostsItsRoundings) {
  for (const Style& style : styles())
    for (bool splits_tokens : {false, true})
      expect_one_rank_results({.model = style.config, .compute = DType::bf16}, splits_tokens, 2 * 0x1p-9,
                              64 * 0x1p-9, style.name + std::string(", bf16"));
}

TEST(Tensor, EveryHeadMatchesOneRank) {
  for (HeadKind kind : {HeadKind::kDense, HeadKind::kChunked, HeadKind::kRecompute})
    for (const Style& style : styles()) {
      const bool is_tied = style.config.is_tied;
      const HeadConfig head{.kind = kind,
                            .accumulation = is_tied ? HeadAccumulation::kF32 : HeadAccumulation::kKahan,
                            .z_loss = 1e-3,
                            .label_smoothing = 0.05};
      expect_one_rank_results({.model = style.config, .head = head}, is_tied, kF32Loss, kF32Gradient,
                              fmt::format("{}, head {}", style.name, static_cast<int>(kind)));
    }
}

// Some FP8 values round in the other direction, because their operands differ in the last bit.
TEST(Tensor, Fp8HeadScalesEqualThoseOfOneRank) {
  for (HeadKind kind : {HeadKind::kChunked, HeadKind::kRecompute})
    for (Fp8HeadScaling scaling : {Fp8HeadScaling::kStatic, Fp8HeadScaling::kCurrent}) {
      const HeadConfig head{.kind = kind, .precision = HeadPrecision::kFp8, .fp8_scaling = scaling};
      expect_one_rank_results({.model = speedrun(), .head = head}, false, 1e-4, 0.05,
                              fmt::format("fp8 head {}", static_cast<int>(kind)));
    }
}

TEST(Tensor, RecomputingGivesTheSameBits) {
  using Policy = RecomputePolicy;
  for (const ModelConfig& config : {gpt2(), llama(), relative(), norms_after(), whole_speedrun()})
    for (bool splits_tokens : {false, true}) {
      TensorRegion region(*world);
      const TensorParallel share = tensor_parallel(*world, splits_tokens);
      Share kept({.model = config, .recompute = {.policy = Policy::kNone}}, share, region);
      const LossSums want = kept.run();
      for (Policy policy : {Policy::kSelective, Policy::kBlock, Policy::kSqrt}) {
        Share again({.model = config,
                     .recompute = {.policy = policy,
                                   .parts = {RecomputePart::kNorms, RecomputePart::kActivation,
                                             RecomputePart::kMlp, RecomputePart::kEmbedding}}},
                    share, region);
        EXPECT_EQ(again.run().loss, want.loss);
        EXPECT_EQ(again.grads(), kept.grads());
      }
    }
}

TEST(Tensor, GeneratesWithTheLogitsOfOneRank) {
  for (const Style& style : styles())
    for (bool splits_tokens : {false, true}) {
      Region alone;
      Share whole({.model = style.config}, {}, alone);
      TensorRegion region(*world);
      Share own({.model = style.config}, tensor_parallel(*world, splits_tokens), region);
      const std::vector<float> want = whole.generate(), got = own.generate();
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-5f * std::max(1.0f, std::abs(want[i]))) << style.name << " " << i;
    }
}

// Takes the maximum of each amax over the ranks, because all ranks have one history of delayed scaling.
void share_amaxes(Fp8State& state) {
  for (int t = 0; t < std::ssize(state.entries()); ++t)
    world->all_reduce("amax", Tensor(&state[t].amax, DType::f32, {1}), ReduceOp::kMax);
}

// The test runs two steps, because delayed scaling takes the second step's scales from the first
// one's amaxes.
TEST(Tensor, Fp8LinearScalesEqualThoseOfOneRank) {
  for (Fp8Recipe recipe : {Fp8Recipe::kTensorwise, Fp8Recipe::kDelayed})
    for (bool splits_tokens : {false, true}) {
      Case setup{.model = gpt2(), .fp8 = {.recipe = recipe, .amax_history = 4}};
      Region alone;
      Share whole(setup, {}, alone);
      TensorRegion region(*world);
      Share own(setup, tensor_parallel(*world, splits_tokens), region);
      for (int step = 0; step < 2; ++step) {
        whole.fp8().begin_step();
        own.fp8().begin_step();
        const LossSums want = whole.run(), got = own.run();
        // A few of the 8-bit values round in the other direction.
        EXPECT_NEAR(got.loss, want.loss, 2e-3 * want.loss) << step;
        share_amaxes(own.fp8());
        for (size_t t = 0; t < own.fp8().entries().size(); ++t) {
          const Fp8State::Entry &mine = own.fp8().entries()[t], &all = whole.fp8().entries()[t];
          ASSERT_EQ(mine.name, all.name);
          if (mine.name.ends_with(".w"))
            EXPECT_EQ(mine.stats.amax, all.stats.amax) << mine.name;
          else
            EXPECT_NEAR(mine.stats.amax, all.stats.amax, 0.1f * all.stats.amax) << mine.name;
        }
        whole.fp8().end_step();
        own.fp8().end_step();
      }
      std::vector<float> amaxes = own.fp8().amaxes();
      expect_equal_on_all_ranks(amaxes, "amaxes");
    }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
