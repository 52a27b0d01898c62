// Tests training with every head, and that a run stops if the trained loss is not the true loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/reference/error_of.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

RunConfig head_config(std::vector<std::string> assignments) {
  assignments.insert(assignments.begin(),
                     {"model.tied=false", "train.batch_size=4", "train.grad_accum=2", "head.raw_ce_every=1"});
  return small_config(assignments);
}

// Returns how far, relative to it, a head's format may take the loss after 40 steps from that of f32.
double loss_of_rounding(const RunConfig& c) {
  if (c.head.precision == HeadPrecision::kFp8) return 0.02;
  const bool is_f32 = c.precision.compute == DType::f32 && c.head.precision != HeadPrecision::kBf16;
  return is_f32 ? 1e-4 : 1e-3;
}

TEST(HeadTraining, EveryHeadReachesTheSameLoss) {
  const double want = SmallTraining(head_config({})).steps(40).loss;
  EXPECT_LT(want, 0.8 * std::log(61.0));
  for (const char* compute : {"f32", "bf16", "f16"})
    for (const char* kind : {"dense", "chunked", "recompute"})
      for (const char* precision : {"compute", "f32", "bf16", "fp8"}) {
        const RunConfig config =
            head_config({std::string("precision.compute=") + compute, std::string("head.kind=") + kind,
                         std::string("head.precision=") + precision});
        const StepResult last = SmallTraining(config).steps(40);
        EXPECT_NEAR(last.loss, want, loss_of_rounding(config) * want)
            << compute << " " << kind << " " << precision;
        EXPECT_GT(last.raw.tokens, 0);
        EXPECT_NEAR(last.raw.ce, last.loss, 0.02);
      }
}

TEST(HeadTraining, EveryOptionTrains) {
  const double want = SmallTraining(head_config({})).steps(40).loss;
  // Smoothing and caps change what is trained, so they may change the loss by more than FP8 does.
  for (const auto& [option, most] : {std::pair{"head.z_loss=1e-4", 0.02},
                                     {"head.label_smoothing=0.01", 0.06},
                                     {"head.accumulation=kahan", 0.02},
                                     {"model.cap=tanh", 0.04},
                                     {"model.cap=sigmoid", 0.08},
                                     {"head.fp8_scaling=current", 0.02}}) {
    SmallTraining run(head_config({"head.precision=fp8", "model.cap_a=30", option}));
    EXPECT_NEAR(run.steps(40).loss, want, most * want) << option;
  }
  SmallTraining filtered(head_config({"head.kind=recompute", "head.filter=1e-5"}));
  EXPECT_NEAR(filtered.steps(40).loss, want, 1e-3 * want);
}

TEST(HeadTraining, TrainsWithoutF32Masters) {
  const double want = SmallTraining(head_config({})).steps(40).loss;
  for (const char* master : {"bf16_stochastic", "bf16_tail"})
    for (const char* precision : {"compute", "fp8"}) {
      const RunConfig config =
          head_config({"precision.compute=bf16", std::string("precision.master=") + master,
                       std::string("head.precision=") + precision});
      EXPECT_NEAR(SmallTraining(config).steps(40).loss, want, loss_of_rounding(config) * want)
          << master << " " << precision;
    }
}

TEST(HeadTraining, AWrongLossStopsTheRun) {
  SmallTraining run(head_config({"precision.compute=bf16"}));
  run.steps(20);
  // Makes the copies that products read differ from the masters that the optimizer keeps.
  const auto& specs = run.trainer.layout().model->params().specs();
  for (size_t p = 0; p < specs.size(); ++p) {
    if (specs[p].role != ParamRole::kHead) continue;
    const Tensor w = run.trainer.params().weight(static_cast<int>(p));
    for (int64_t i = 0; i < w.elements(); ++i) w.as<bf16>()[i] = bf16(0.0f);
  }
  EXPECT_THAT(error_of([&] { run.steps(1); }, ErrorKind::kNumerics),
              testing::AllOf(::testing::HasSubstr("what is trained on is not the loss any more"),
                             ::testing::HasSubstr("head.raw_ce_limit")));
  EXPECT_EQ(run.trainer.state().steps_done, 20);
}

// A sum in bf16 stops growing, so the loss is far too low. Rounded logits alone do not cause this.
TEST(HeadTraining, ALossInBf16IsFoundAtTheFirstStep) {
  for (const char* kind : {"dense", "chunked"}) {
    const auto settings = [&](const char* dtype) {
      return head_config({"precision.compute=bf16", "model.vocab=4096", std::string("head.kind=") + kind,
                          std::string("head.loss_dtype=") + dtype});
    };
    SmallTraining wrong(settings("bf16"));
    EXPECT_THAT(error_of([&] { wrong.steps(1); }, ErrorKind::kNumerics),
                testing::AllOf(::testing::HasSubstr("a loss of 5."), ::testing::HasSubstr("it is 8.3")));
    const StepResult right = SmallTraining(settings("bf16_logits")).steps(20);
    EXPECT_NEAR(right.raw.trained, right.raw.objective, 0.02);
  }
}

TEST(HeadTraining, ConfigErrorsNameTheKey) {
  EXPECT_EQ(refusal({"head.filter=0.5"}),
            "--set: head.filter must be 0 unless head.kind = \"recompute\", got 0.5");
  EXPECT_EQ(refusal({"head.label_smoothing=1"}), "--set: head.label_smoothing must lie in [0, 1), got 1");
  EXPECT_THROW(head_config({"precision.compute=bf16", "precision.master=bf16_tail", "head.precision=f32"}),
               Error);
  EXPECT_THAT(refusal({"head.loss_dtype=bf16"}), ::testing::HasSubstr("set head.precision = bf16"));
  EXPECT_THAT(refusal({"head.precision=bf16", "head.loss_dtype=bf16_logits", "head.kind=recompute"}),
              ::testing::HasSubstr("head.loss_dtype must be f32 with head.kind"));
  EXPECT_THAT(refusal({"head.precision=bf16", "head.loss_dtype=bf16", "head.z_loss=1e-4"}),
              ::testing::HasSubstr("knows no z_loss"));
  EXPECT_THAT(refusal({"head.precision=bf16", "head.loss_dtype=bf16", "model.cap=tanh", "model.cap_a=15"}),
              ::testing::HasSubstr("knows no logit cap"));
  EXPECT_EQ(refusal({"head.z_loss=-1"}), "--set: head.z_loss must not be negative (0 is off), got -1");
}

}  // namespace
}  // namespace ingot
