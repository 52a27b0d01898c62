// Asynchronous steps of several ranks on simulated devices: the devices of all ranks judge a step together,
// results are those of synchronous steps, and the host does not wait.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/simulated_cuda/mpi/async_steps.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kFew = 3;

// A synchronous step sums squares of the ranks' norms, an asynchronous one their squares: one rounding of a
// double more. Its effect on the factor, an f32, is at most the last bit, and so on the weights.
constexpr double kLastBits = 1e-6;

class AsyncOnRanks : public ::testing::TestWithParam<AsyncRanks> {};

TEST_P(AsyncOnRanks, EqualsSynchronousSteps) {
  Together late(GetParam().config), waiting(GetParam().config);
  late.begin();
  waiting.begin();
  ASSERT_GT(late.run.trainer.depth({}), 0U);
  const std::vector<StepResult> got = late.asynchronous(kFew), want = waiting.synchronous(kFew);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i].loss, want[i].loss, kLastBits * want[i].loss) << i;
    EXPECT_NEAR(got[i].top1, want[i].top1, 0.01) << i;
    EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
    EXPECT_EQ(got[i].step.scaler.scale, want[i].step.scaler.scale) << i;
    EXPECT_EQ(got[i].fp8.elements, want[i].fp8.elements) << i;
    if (want[i].lowered_scale) continue;
    EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 100 * kLastBits * want[i].grad_norm) << i;
    EXPECT_LT(got[i].clip, 1) << i;
  }
  if (const auto& pipeline = late.run.trainer.layout().executor->pipeline()) {
    EXPECT_GT(pipeline->step_s, 0);
    EXPECT_LE(pipeline->wait_s, pipeline->step_s);
  }
  EXPECT_EQ(late.run.trainer.state().fp8.amaxes(), waiting.run.trainer.state().fp8.amaxes());
  EXPECT_EQ(late.run.loader.position(), waiting.run.loader.position());
  EXPECT_EQ(late.run.trainer.state().steps_done, waiting.run.trainer.state().steps_done);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, AsyncOnRanks,
    ::testing::Values(AsyncRanks{"replicas", replicated(llama())},
                      AsyncRanks{"shards", laid_out(clipped(gpt2()), 0)},
                      AsyncRanks{"replicas_of_shards", laid_out(clipped(with_8bit(llama())), 2)},
                      AsyncRanks{"muon_of_replicas", replicated(with_muon(gpt2(), DType::f32))},
                      AsyncRanks{"muon_of_shards", laid_out(clipped(with_muon(llama(), DType::f32)), 0)},
                      AsyncRanks{"adafactor_of_shards",
                                 laid_out(clipped(with_rule(llama(), "adafactor")), 2)},
                      AsyncRanks{"tensors", laid_out(clipped(llama()), tensors())},
                      AsyncRanks{"tensors_of_shards",
                                 laid_out(clipped(with_muon(gpt2(), DType::f32)), sharing_of_shards())},
                      AsyncRanks{"stages", laid_out(clipped(llama()), all_stages())},
                      AsyncRanks{"tied_stages", laid_out(clipped(gpt2()), stages_of_tensors())},
                      AsyncRanks{"f16", in_f16(gpt2())}, AsyncRanks{"fp8", in_fp8(llama())},
                      AsyncRanks{"fp8_delayed_shards", delayed(in_fp8(llama()))},
                      AsyncRanks{"fp8_delayed_replicas", delayed(replicated(llama()))},
                      AsyncRanks{"fp8_delayed_stages", delayed(laid_out(clipped(llama()), all_stages()))}),
    [](const auto& info) { return std::string(info.param.name); });

// One rank's gradient is not finite: no rank makes the update of that step or of the next, and all make it
// again.
TEST(AsyncSteps, ANonFiniteGradientOfOneRankStopsAll) {
  for (const RunConfig& c : {replicated(llama()), laid_out(clipped(llama()), 0),
                             laid_out(clipped(with_rule(gpt2(), "adafactor")), 0),
                             laid_out(clipped(gpt2()), stages_of_tensors())}) {
    SCOPED_TRACE(c.parallel.to_string());
    Together together(c), calm(c);
    together.asynchronous(2);
    const std::vector<StepResult> want = calm.asynchronous(3);
    const std::vector<float> before = together.weights_here();
    if (!together.poison()) continue;  // shards on a shared GPU, whose messages go through the host
    together.submit(true);
    together.submit(true);
    const StepResult result = together.run.trainer.collect(together.run.loader);
    EXPECT_TRUE(result.is_repeated);
    EXPECT_FALSE(result.is_updated);
    EXPECT_EQ(together.run.trainer.state().steps_done, 2);
    EXPECT_EQ(together.weights_here(), before);
    // The NaN was a fault of the memory, so the repeated step gives the result of an undisturbed run.
    EXPECT_NEAR(result.loss, want[2].loss, kLastBits * want[2].loss);
    together.run.trainer.update(result);
    const std::vector<float> after = together.weights_here(), wanted = calm.weights_here();
    EXPECT_NE(after, before);
    for (size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], wanted[i], kLastBits) << i;
  }
}

// While a step is submitted, no collective ends: the host has waited for nothing, neither for gradients nor
// for the verdict, nor for Muon's rounds.
TEST(AsyncSteps, TheHostWaitsForNothing) {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  if (!gpus || std::string(gpus) != "own" || world->size() == 1) GTEST_SKIP() << "the ranks share a GPU";
  for (const RunConfig& c : {replicated(with_muon(llama(), DType::f32)), laid_out(clipped(gpt2()), 0),
                             laid_out(clipped(with_muon(llama(), DType::f32)), 2),
                             laid_out(clipped(with_rule(gpt2(), "adafactor")), 0),
                             laid_out(clipped(with_muon(llama(), DType::f32)), tensors()),
                             laid_out(clipped(gpt2()), all_stages())}) {
    Together together(c);
    together.asynchronous(1);
    simulated_nccl::take_record();
    together.submit(true);
    const std::vector<std::string> record = simulated_nccl::take_record();
    EXPECT_THAT(record, Not(IsEmpty()));
    EXPECT_THAT(record, Each(Not(StartsWith("end"))));
    together.collect();
  }
}

}  // namespace
}  // namespace ingot
