// Asynchronous steps of several ranks on simulated devices: the devices of all ranks judge a step together, results are
// those of synchronous steps, and the host does not wait.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "ingot/core/copy.h"
#include "ingot/core/staging.h"
#include "tests/parallel/mpi/ranks_fixture.h"
#include "tests/simulated_cuda/mpi/small_run.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kFew = 3;

// A synchronous step sums squares of the ranks' norms, an asynchronous one their squares: one rounding of a double more.
// Its effect on the factor, an f32, is at most the last bit, and so on the weights.
constexpr double kLastBits = 1e-6;

struct AsyncRanks {
  const char* name;
  RunConfig config;
};
void PrintTo(const AsyncRanks& c, std::ostream* out) { *out << c.name; }

// grad_clip is below the norms of these models, so the factor matters.
RunConfig clipped(RunConfig c) {
  c = small(std::move(c));
  c.train.device = Device::kCuda;
  c.train.grad_accum = world->size();
  c.optimizer.grad_clip = 0.2;
  c.head.raw_ce_every = 0;
  return c;
}

// fsdp: 0 for all ranks.
RunConfig laid_out(RunConfig c, int64_t fsdp) {
  c.parallel.fsdp = fsdp == 0 ? world->size() : std::min<int64_t>(fsdp, world->size());
  c.parallel.dp = world->size() / c.parallel.fsdp;
  return c;
}

RunConfig laid_out(RunConfig c, const ParallelConfig& layout) {
  c.parallel = layout;
  return c;
}

ParallelConfig tensors() { return sharing(2); }
ParallelConfig all_stages() { return stages(2, PipelineKind::kOneFOneB); }
ParallelConfig stages_of_tensors() { return stages(2, PipelineKind::kOneFOneB, 1, 2); }

RunConfig replicated(const RunConfig& c) { return laid_out(clipped(c), 1); }

// The first of two micro-batches is a graph.
RunConfig in_graphs(RunConfig c) {
  c.train.has_graph = true;
  c.train.grad_accum *= 2;
  return c;
}

// The first steps overflow, and the steps after them are undone.
RunConfig in_f16(const RunConfig& c) {
  RunConfig f16 = laid_out(clipped(c), 0);
  f16.precision.compute = DType::f16;
  f16.precision.loss_scale.init = 0x1p30;
  return f16;
}

RunConfig in_fp8(const RunConfig& c) {
  RunConfig fp8 = laid_out(clipped(c), 2);
  fp8.precision.compute = DType::bf16;
  fp8.precision.fp8.recipe = Fp8Recipe::kTensorwise;
  return fp8;
}

// A trainer on all ranks.
struct Together {
  explicit Together(const RunConfig& c) : mesh(Mesh::make(*world, mesh_shape(c.parallel))), run(c, mesh) {}

  void submit(bool is_asynchronous) {
    run.trainer.submit(run.loader, {.micros = run.config.train.grad_accum,
                                    .inputs = {.lr = run.config.optimizer.lr},
                                    .is_asynchronous = is_asynchronous});
  }
  // Makes the update that a synchronous step asks for.
  StepResult collect() {
    StepResult result = run.trainer.collect(run.loader);
    if (result.lowered_scale)
      run.trainer.discard();
    else
      run.trainer.update(result);
    return result;
  }
  std::vector<StepResult> synchronous(int steps) {
    std::vector<StepResult> results;
    for (int i = 0; i < steps; ++i) {
      submit(false);
      results.push_back(collect());
    }
    return results;
  }
  // Submits the next step before it collects one.
  std::vector<StepResult> asynchronous(int steps) {
    std::vector<StepResult> results;
    for (int in_flight = 0; std::ssize(results) < steps;) {
      for (; in_flight < 2 && std::ssize(results) + in_flight < steps; ++in_flight) submit(true);
      results.push_back(collect());
      in_flight = results.back().is_repeated ? 0 : in_flight - 1;
    }
    return results;
  }
  std::vector<float> weights_here() {
    Staging staging;
    std::vector<float> all;
    for (const ParamShard& shard : run.trainer.params().shards()) {
      const Tensor w = staging.read(shard.w, *run.trainer.layout().stream);
      all.insert(all.end(), w.as<float>(), w.as<float>() + w.elements());
    }
    return all;
  }
  // Puts a NaN into a gradient of the last rank only.
  void poison() {
    Stream& stream = *run.trainer.layout().stream;
    for (const ParamShard& shard : run.trainer.params().shards()) {
      if (shard.elements() == 0 || world->rank() + 1 < world->size()) continue;
      Staging staging;
      const Tensor host = staging.read(shard.grad, stream);
      host.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      copy(shard.grad, host, stream);
      return synchronize(stream);
    }
  }

  Mesh mesh;
  Training run;
};

class AsyncOnRanks : public ::testing::TestWithParam<AsyncRanks> {};

TEST_P(AsyncOnRanks, EqualsSynchronousSteps) {
  RunConfig waiting_config = GetParam().config;
  waiting_config.train.has_graph = false;
  Together late(GetParam().config), waiting(waiting_config);
  ASSERT_GT(late.run.trainer.depth({}), 0U);
  const std::vector<StepResult> got = late.asynchronous(kFew), want = waiting.synchronous(kFew);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i].loss, want[i].loss, kLastBits * want[i].loss) << i;
    EXPECT_NEAR(got[i].top1, want[i].top1, 0.01) << i;
    EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
    EXPECT_EQ(got[i].loss_scale, want[i].loss_scale) << i;
    EXPECT_EQ(got[i].fp8.elements, want[i].fp8.elements) << i;
    if (want[i].lowered_scale) continue;
    EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 100 * kLastBits * want[i].grad_norm) << i;
    EXPECT_LT(got[i].clip, 1) << i;
  }
  if (const auto& pipeline = late.run.trainer.layout().executor->pipeline()) {
    EXPECT_GT(pipeline->step_s, 0);
    EXPECT_LE(pipeline->wait_s, pipeline->step_s);
  }
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
                      AsyncRanks{"graphs", in_graphs(replicated(llama()))},
                      AsyncRanks{"graphs_with_muon", in_graphs(replicated(with_muon(llama(), DType::f32)))}),
    [](const auto& info) { return std::string(info.param.name); });

// One rank's gradient is not finite: no rank makes the update of that step or of the next, and all make it again.
TEST(AsyncSteps, ANonFiniteGradientOfOneRankStopsAll) {
  for (const RunConfig& c : {replicated(llama()), laid_out(clipped(llama()), 0),
                             laid_out(clipped(with_rule(gpt2(), "adafactor")), 0),
                             laid_out(clipped(gpt2()), stages_of_tensors())}) {
    Together together(c), calm(c);
    together.asynchronous(2);
    const std::vector<StepResult> want = calm.asynchronous(3);
    const std::vector<float> before = together.weights_here();
    together.poison();
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

// While a step is submitted, no collective ends: the host has waited for nothing, neither for gradients nor for the
// verdict, nor for Muon's rounds.
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
