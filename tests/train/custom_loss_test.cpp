// Tests steps with a loss of the caller's own, and with batches of the caller's own.
#include "ingot/nn/custom_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ingot/data/given_batches.h"
#include "tests/train/gradient_tolerance.h"
#include "tests/train/plain_cross_entropy.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

constexpr int64_t kVocab = 61;

// Half the mean square of the logits of counted tokens, with weights that differ from column to column.
double mean_square(const Tensor& logits, const Tensor& /*targets*/, const Tensor& d) {
  const int64_t N = logits.dim(0), Vp = logits.dim(1);
  const double scale = 100.0 / static_cast<double>(N * kVocab);
  double sum = 0;
  for (int64_t n = 0; n < N; ++n)
    for (int64_t v = 0; v < kVocab; ++v) {
      const auto z = static_cast<double>(logits.as<float>()[n * Vp + v]);
      const double weight = scale * (1 + static_cast<double>((n + 3 * v) % 7));
      sum += weight / 2 * (z - 1) * (z - 1);
      if (d) d.as<float>()[n * Vp + v] = static_cast<float>(weight * (z - 1));
    }
  return sum;
}

// The gradients of the mean loss, of all parameters.
std::vector<std::vector<double>> mean_gradients(Trainer& trainer, const StepResult& result) {
  std::vector<std::vector<double>> all;
  for (const ParamShard& shard : trainer.params().shards()) {
    std::vector<double>& one = all.emplace_back();
    for (int64_t i = 0; i < shard.elements(); ++i)
      one.push_back(static_cast<double>(shard.grad.as<float>()[i]) * result.grad_correction);
  }
  return all;
}

// Rows of chain() in which every third target is not counted, of unlike numbers in the two micro-batches.
GivenBatches masked_rows(const Trainer& trainer) {
  const BatchShape& shape = trainer.layout().batch_shape;
  const int64_t rows = 2 * shape.batch - 1, T = shape.context;
  std::vector<uint32_t> text(static_cast<size_t>(rows * T + 1));
  chain().read(0, text);
  std::vector<int32_t> tokens(text.begin(), text.end() - 1), targets(text.begin() + 1, text.end());
  for (size_t i = 0; i < targets.size(); i += 3) targets[i] = kIgnoreIndex;
  return {shape, rows, T, tokens, targets};
}

TEST(CustomLoss, CrossEntropyHasTheGradientsOfTheHead) {
  for (const std::vector<std::string>& assignments : {std::vector<std::string>{"model.tied=false"},
                                                      {"model.tied=true"},
                                                      {"model.cap=tanh", "model.cap_a=2"},
                                                      {"model.cap=sigmoid", "model.cap_a=3", "model.cap_c=2"},
                                                      {"precision.compute=bf16"},
                                                      {"precision.compute=bf16", "head.precision=f32"},
                                                      {"precision.compute=f16"},
                                                      {"head.precision=bf16"}}) {
    std::vector<std::string> all = {"train.grad_accum=2", "train.batch_size=4", "head.raw_ce_every=0"};
    all.insert(all.end(), assignments.begin(), assignments.end());
    const RunConfig config = small_config(all);
    SCOPED_TRACE(testing::PrintToString(assignments));
    SmallTraining built_in(config), own(config);
    for (SmallTraining* run : {&built_in, &own}) run->steps(3);
    CustomLoss loss = custom_loss(own.trainer, plain_cross_entropy);
    GivenBatches first = masked_rows(built_in.trainer), second = masked_rows(own.trainer);
    built_in.trainer.submit(first, {.micros = 2});
    const StepResult want = built_in.trainer.collect(first);
    own.trainer.submit(second, {.micros = 2, .loss = &loss});
    const StepResult got = own.trainer.collect(second);
    RunConfig rounded = config;
    if (config.head.precision == HeadPrecision::kBf16) rounded.precision.compute = DType::bf16;
    const double tolerance = gradient_tolerance(rounded);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_NEAR(got.loss, want.loss, tolerance * want.loss);
    EXPECT_NEAR(got.grad_norm, want.grad_norm, tolerance * want.grad_norm);
    const auto wanted = mean_gradients(built_in.trainer, want), found = mean_gradients(own.trainer, got);
    for (size_t p = 0; p < wanted.size(); ++p) {
      double difference = 0, square = 0;
      for (size_t i = 0; i < wanted[p].size(); ++i) {
        difference += (found[p][i] - wanted[p][i]) * (found[p][i] - wanted[p][i]);
        square += wanted[p][i] * wanted[p][i];
      }
      EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(square)) << p;
    }
  }
}

TEST(CustomLoss, GradientIsTheSlopeOfTheLoss) {
  const RunConfig config = small_config({"model.tied=false", "train.grad_accum=2", "train.batch_size=4",
                                         "model.cap=tanh", "model.cap_a=0.2", "head.raw_ce_every=1"});
  SmallTraining run(config);
  run.steps(3);
  CustomLoss loss = custom_loss(run.trainer, mean_square);
  GivenBatches rows = masked_rows(run.trainer);
  const auto loss_now = [&] {
    rows.seek(0);
    run.trainer.submit(rows, {.micros = 2, .loss = &loss});
    return run.trainer.collect(rows);
  };
  const StepResult here = loss_now();
  const auto gradients = mean_gradients(run.trainer, here);
  run.trainer.discard();
  // f32 losses of about 200 are rounded by 2^-24 each, in both directions.
  const double h = 1e-2, rounding = 4 * here.loss * 0x1p-24 / (2 * h);
  const std::vector<ParamShard> shards = run.trainer.params().shards();
  for (size_t p = 0; p < shards.size(); ++p) {
    double norm = 0;
    for (const double g : gradients[p]) norm += g * g;
    norm = std::sqrt(norm);
    std::vector<double> losses;
    for (const double step : {h, -2 * h}) {
      for (size_t i = 0; i < gradients[p].size(); ++i)
        shards[p].w.as<float>()[i] += static_cast<float>(step * gradients[p][i] / norm);
      losses.push_back(loss_now().loss);
      run.trainer.discard();
    }
    for (size_t i = 0; i < gradients[p].size(); ++i)
      shards[p].w.as<float>()[i] += static_cast<float>(h * gradients[p][i] / norm);
    EXPECT_NEAR((losses[0] - losses[1]) / (2 * h), norm, 0.01 * norm + rounding)
        << run.trainer.params().list()[shards[p].id].name;
  }
}

TEST(CustomLoss, ForwardGivesTheCappedLogitsWithoutGradients) {
  SmallTraining run(small_config({"model.cap=tanh", "model.cap_a=0.5", "train.batch_size=4"}));
  float largest = 0;
  CustomLoss loss = custom_loss(run.trainer, [&](const Tensor& logits, const Tensor&, const Tensor& d) {
    EXPECT_FALSE(d);
    for (int64_t i = 0; i < logits.elements(); ++i)
      largest = std::max(largest, std::abs(logits.as<float>()[i]));
    return 7.0;
  });
  GivenBatches rows = masked_rows(run.trainer);
  const LossSums sums = run.trainer.forward(rows.next(), &loss);
  EXPECT_EQ(sums.loss, 7.0 * static_cast<double>(sums.counted));
  EXPECT_GT(largest, 0.0f);
  EXPECT_LE(largest, 0.5f);
  rows.seek(0);
  CustomLoss plain = custom_loss(run.trainer, plain_cross_entropy);
  const Batch& batch = rows.next();
  EXPECT_NEAR(run.trainer.forward(batch, &plain).loss, run.trainer.forward(batch).loss, 1e-3);
}

TEST(CustomLoss, OneThatThrowsOrIsNotFiniteChangesNothing) {
  const RunConfig config = small_config({"train.grad_accum=2", "train.batch_size=4"});
  SmallTraining untouched(config), run(config);
  int calls = 0;
  CustomLoss loss = custom_loss(run.trainer, [&](const Tensor&, const Tensor&, const Tensor&) -> double {
    if (++calls == 2) throw Error("the loss refuses");
    return std::nan("");
  });
  EXPECT_THROW(run.trainer.submit(run.loader, {.micros = 2, .loss = &loss}), Error);
  run.trainer.discard();
  run.loader.seek(0);
  run.trainer.submit(run.loader, {.micros = 2, .loss = &loss});
  const StepResult broken = run.trainer.collect(run.loader);
  ASSERT_TRUE(broken.non_finite);
  EXPECT_EQ(broken.non_finite->kind, NonFinite::Kind::kLoss);
  run.trainer.discard();
  run.loader.seek(0);
  EXPECT_EQ(run.steps(3).loss, untouched.steps(3).loss);
}

TEST(CustomLoss, AnFp8HeadIsRefusedWithTheFix) {
  SmallTraining run(small_config({"head.precision=fp8"}));
  CustomLoss loss = custom_loss(run.trainer, plain_cross_entropy);
  try {
    run.trainer.submit(run.loader, {.loss = &loss});
    ADD_FAILURE() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("set head.precision to"));
  }
}

TEST(GivenStep, RowsOfTheTextMakeTheStepOfTheText) {
  const RunConfig config = small_config({"train.grad_accum=2", "train.batch_size=4", "model.dropout=0.1"});
  SmallTraining text(config), given(config);
  std::vector<int32_t> tokens, targets;
  for (int micro = 0; micro < 2; ++micro) {
    const Batch& batch = given.loader.next();
    tokens.insert(tokens.end(), batch.tokens.as<int32_t>(),
                  batch.tokens.as<int32_t>() + batch.tokens.elements());
    targets.insert(targets.end(), batch.targets.as<int32_t>(),
                   batch.targets.as<int32_t>() + batch.targets.elements());
  }
  GivenBatches rows(given.trainer.layout().batch_shape, 8, 32, tokens, targets);
  const StepResult want = text.trainer.step(text.loader, {.lr = 1e-3}),
                   got = given.trainer.step(rows, {.lr = 1e-3});
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(got.grad_norm, want.grad_norm);
}

}  // namespace
}  // namespace ingot
