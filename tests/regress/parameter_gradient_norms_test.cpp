// Seen: the gradient norms in params.jsonl were taken after clipping, so with a clip of 0.05 they always
// added up to 0.05. Wanted: they are the norms before clipping, like grad_norm of the step.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/small_training.h"

namespace ingot {
namespace {

TEST(ParameterGradientNorms, AreMeasuredBeforeClipping) {
  for (const char* clip : {"optimizer.grad_clip=0", "optimizer.grad_clip=0.05"}) {
    SmallTraining run(small_config({clip}));
    run.steps(2);
    const StepResult result = gradients(run.trainer, run.loader, 1, {.lr = 1e-3, .wants_stats = true});
    run.trainer.update(result);
    double squares = 0;
    for (const ParamStats& p : run.trainer.stats()) squares += p.grad_norm * p.grad_norm;
    EXPECT_GT(result.grad_norm, 0.1);
    EXPECT_NEAR(std::sqrt(squares), result.grad_norm, 1e-5 * result.grad_norm) << clip;
  }
}

}  // namespace
}  // namespace ingot
