// A loss of the caller's own on a simulated CUDA device: its logits and gradients cross to the host and back.
#include <gtest/gtest.h>

#include "tests/train/gradient_tolerance.h"
#include "tests/train/plain_cross_entropy.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

TEST(SimulatedCustomLoss, CrossEntropyMakesTheStepsOfTheHead) {
  for (const char* compute : {"f32", "bf16", "f16"}) {
    SCOPED_TRACE(compute);
    const RunConfig config =
        small_config({"train.device=cuda", std::string("precision.compute=") + compute, "model.context=8",
                      "train.batch_size=1", "train.grad_accum=2", "model.tied=false", "head.raw_ce_every=0"});
    SmallTraining built_in(config), own(config);
    CustomLoss loss = custom_loss(own.trainer, plain_cross_entropy);
    for (int i = 0; i < 2; ++i) {
      built_in.trainer.submit(built_in.loader, {.micros = 2, .inputs = {.lr = 1e-3}});
      const StepResult want = built_in.trainer.collect(built_in.loader);
      own.trainer.submit(own.loader, {.micros = 2, .inputs = {.lr = 1e-3}, .loss = &loss});
      const StepResult got = own.trainer.collect(own.loader);
      const double tolerance = gradient_tolerance(config);
      EXPECT_EQ(got.tokens, want.tokens);
      EXPECT_NEAR(got.loss, want.loss, tolerance * want.loss);
      EXPECT_NEAR(got.grad_norm, want.grad_norm, tolerance * want.grad_norm);
      built_in.trainer.update(want);
      own.trainer.update(got);
    }
  }
}

}  // namespace
}  // namespace ingot
