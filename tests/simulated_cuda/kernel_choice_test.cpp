// Training, whatever kernels cuBLASLt has, and where it chooses them.
#include <gmock/gmock.h>

#include <cstdlib>

#include "ingot/ops/kernel_report.h"
#include "tests/run/training_fixture.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Keys = std::vector<std::string>;

RunConfig two_micro_batches(const Keys& more) {
  Keys keys{"train.device=cuda",   "train.batch_size=2",   "train.grad_accum=2",
            "model.context=16",    "model.kv_heads=0",     "model.bias=true",
            "model.mlp=gelu_tanh", "model.norm=layernorm", "head.raw_ce_every=0"};
  keys.insert(keys.end(), more.begin(), more.end());
  return small_config(keys);
}

// Products that add to gradients run first in the second micro-batch, which must not be captured before.
class KernelsOfGraphs : public ::testing::TestWithParam<Keys> {};
TEST_P(KernelsOfGraphs, AreChosenBeforeTheFirstCapture) {
  Keys keys = GetParam();
  keys.emplace_back("train.graph=true");
  SmallTraining training(two_micro_batches(keys));
  for (int step = 0; step < 4; ++step) {
    training.trainer.submit(training.loader, {.micros = 2, .inputs = {.lr = 1e-3}, .is_asynchronous = true});
    training.trainer.update(training.trainer.collect(training.loader));
  }
  EXPECT_EQ(kernel_report(*training.trainer.layout().stream).met_in_graphs, 0);
}
INSTANTIATE_TEST_SUITE_P(Models, KernelsOfGraphs,
                         ::testing::Values(Keys{}, Keys{"precision.compute=bf16"},
                                           Keys{"precision.compute=bf16", "precision.fp8=rowwise"},
                                           Keys{"data.document_mask=true"}));

// Losses of rowwise FP8 in which every sum of a product with another tensor is made by a kernel of its own.
// f32 sums in another order differ in the last place, which turns few codes.
TEST(RefusedKernels, LeaveTheLossesOfTraining) {
  const Keys fp8{"precision.fp8=rowwise", "model.width=64"};
  const auto losses = [&](std::string& refused) {
    SmallTraining training(two_micro_batches(fp8));
    std::vector<double> all;
    for (int step = 0; step < 4; ++step) all.push_back(training.steps(1).loss);
    refused = kernel_report(*training.trainer.layout().stream).refused();
    return all;
  };
  std::string none, some;
  const std::vector<double> want = losses(none);
  setenv("INGOT_SIMULATED_CUBLASLT_REFUSES", "rowwise_beta addend rowwise_fast", 1);
  const std::vector<double> got = losses(some);
  unsetenv("INGOT_SIMULATED_CUBLASLT_REFUSES");
  EXPECT_EQ(none, "");
  EXPECT_THAT(some, AllOf(HasSubstr("beta 1"), HasSubstr("C != D"), HasSubstr("fast sums")));
  constexpr double kTurnedCodes = 1e-4;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], kTurnedCodes * want[i]) << i;
}

class RefusedRun : public TrainingTest {};
TEST_F(RefusedRun, SaysOnceWhatReplacesProducts) {
  RunConfig c = config(DType::f32);
  c.model = {.layers = 1, .heads = 2, .kv_heads = 0, .width = 32, .context = 16};
  c.data.tokenizer = "char";
  c.train.steps = 4;
  c.train.batch_size = 1;
  c.train.device = Device::kCuda;
  c.precision.fp8.recipe = Fp8Recipe::kRowwise;
  c.eval.max_tokens = 64;
  setenv("INGOT_SIMULATED_CUBLASLT_REFUSES", "rowwise_beta", 1);
  train(c, folder / "run");
  unsetenv("INGOT_SIMULATED_CUBLASLT_REFUSES");
  const std::string line =
      "note: cuBLASLt has no kernel for some products, which others replace: f8e4m3 x f8e4m3 -> f32, NT, "
      "scales by "
      "row, beta 1\n";
  const size_t at = said.find(line);
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("cuBLASLt has no kernel", at + line.size()), std::string::npos);
}

}  // namespace
}  // namespace ingot
