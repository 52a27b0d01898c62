// CUDA graphs on several ranks: in every layout, steps that replay graphs with messages equal those that are
// submitted kernel by kernel, bit for bit.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/simulated_cuda/mpi/async_steps.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::SizeIs;

// Three micro-batches on each rank of a layout that divides them over all, or over half of them: the first,
// the last, and one between them.
RunConfig deep(RunConfig c, int64_t layers = 1) {
  c = clipped(std::move(c));
  c.model.layers = layers;
  c.train.grad_accum = 3 * world->size();
  return c;
}
// Blocks enough for all slots that units take turns in, and one more.
RunConfig sharded(const RunConfig& c, int64_t fsdp = 0) { return laid_out(deep(c, 4), fsdp); }

RunConfig rounded(RunConfig c) {
  c.parallel.payload = DType::bf16;
  c.parallel.has_error_feedback = true;
  c.parallel.bucket_mb = 1;
  return c;
}
// The loss scale, which is an argument of kernels, grows after every second step.
RunConfig rescaling(RunConfig c) {
  c.precision.loss_scale.init = 1024;
  c.precision.loss_scale.growth_interval = 2;
  return c;
}
RunConfig with_fp8(RunConfig c) {
  c = in(c, DType::bf16);
  c.model.width = 64;  // the shards of all linears are multiples of 16
  c.model.ffn = 128;
  c.precision.fp8.recipe = Fp8Recipe::kTensorwise;
  return c;
}
RunConfig dropping(RunConfig c) {
  c.model.dropout = 0.2;
  return c;
}
// The number of documents in a micro-batch changes, and with it which graph a rank runs, if any.
RunConfig with_documents(RunConfig c) {
  c.data.has_document_mask = true;
  c.model.context = 128;
  return c;
}
RunConfig in_stages(RunConfig c, const ParallelConfig& layout, int64_t layers = 2) {
  c = laid_out(deep(c, layers), layout);
  c.train.grad_accum = 4 * world->size() / layout.pp;
  return c;
}
ParallelConfig stages_of_shards() {
  ParallelConfig c = stages(2, PipelineKind::kOneFOneB);
  std::swap(c.dp, c.fsdp);
  return c;
}
ParallelConfig interleaved() { return stages(2, PipelineKind::kInterleaved, 2); }

std::vector<char> states_here(Trainer& trainer) {
  Staging staging;
  std::vector<char> bytes;
  for (const Optimizer::State& state : trainer.state().optimizer.states()) {
    if (state.tensor.elements() == 0) continue;
    const Tensor host = staging.read(state.tensor, *trainer.layout().stream);
    bytes.insert(bytes.end(), static_cast<char*>(host.data), static_cast<char*>(host.data) + host.bytes());
  }
  return bytes;
}

bool have_own_gpus() {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  return gpus && std::string(gpus) == "own" && world->size() > 1;
}

class GraphsOnRanks : public ::testing::TestWithParam<AsyncRanks> {};

TEST_P(GraphsOnRanks, EqualStepsSubmittedKernelByKernel) {
  RunConfig config = GetParam().config;
  if (!have_own_gpus() && config.parallel.ranks() != config.parallel.dp)
    GTEST_SKIP() << "messages that go through the host are not in graphs";
  Together plain(config);
  config.train.has_graph = true;
  Together graphs(config);
  plain.begin();
  graphs.begin();
  const int64_t tokens = 4 * config.train.batch_size * config.model.context;
  // Evaluations come before the capture and between replays, and gather weights as they are then.
  for (const int steps : {1, 2, 1}) {
    const std::vector<StepResult> got = graphs.asynchronous(steps), want = plain.asynchronous(steps);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].loss, want[i].loss) << steps << " " << i;
      EXPECT_EQ(got[i].top1, want[i].top1) << steps << " " << i;
      EXPECT_EQ(got[i].grad_norm, want[i].grad_norm) << steps << " " << i;
      EXPECT_EQ(got[i].step.scaler.scale, want[i].step.scaler.scale) << steps << " " << i;
      EXPECT_EQ(got[i].fp8.elements, want[i].fp8.elements) << steps << " " << i;
      EXPECT_EQ(got[i].fp8.amax, want[i].fp8.amax) << steps << " " << i;
    }
    EXPECT_EQ(graphs.run.trainer.evaluate(graphs.run.source, tokens).loss,
              plain.run.trainer.evaluate(plain.run.source, tokens).loss)
        << steps;
  }
  EXPECT_EQ(graphs.weights_here(), plain.weights_here());
  EXPECT_EQ(graphs.run.trainer.state().fp8.amaxes(), plain.run.trainer.state().fp8.amaxes());
  EXPECT_TRUE(states_here(graphs.run.trainer) == states_here(plain.run.trainer));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, GraphsOnRanks,
    ::testing::Values(AsyncRanks{"replicas", laid_out(deep(llama()), 1)},
                      AsyncRanks{"rounded_replicas", rounded(laid_out(deep(gpt2(), 2), 1))},
                      AsyncRanks{"muon_of_replicas", laid_out(deep(with_muon(llama(), DType::f32)), 1)},
                      AsyncRanks{"shards", sharded(gpt2())},
                      AsyncRanks{"rounded_shards", rounded(sharded(llama()))},
                      AsyncRanks{"bf16_shards", recomputing(in(sharded(llama()), DType::bf16))},
                      AsyncRanks{"f16_shards", rescaling(in(sharded(gpt2()), DType::f16))},
                      AsyncRanks{"kept_units", keeping_units(sharded(llama()))},
                      AsyncRanks{"replicas_of_shards", rounded(sharded(with_8bit(llama()), 2))},
                      AsyncRanks{"fp8_shards", with_fp8(sharded(llama()))},
                      AsyncRanks{"fp8_delayed_shards", delayed(with_fp8(sharded(llama(), 2)))},
                      AsyncRanks{"fp8_delayed_tensors",
                                 delayed(with_fp8(laid_out(deep(llama()), tensors())))},
                      AsyncRanks{"tensors", laid_out(deep(llama()), tensors())},
                      AsyncRanks{"fp8_tensors", with_fp8(laid_out(deep(llama()), tensors()))},
                      AsyncRanks{"tensors_of_shards",
                                 laid_out(deep(with_muon(gpt2(), DType::f32), 2), sharing_of_shards())},
                      AsyncRanks{"adapters_of_shards", with_adapters(sharded(llama()), {"blocks.2.*"})},
                      AsyncRanks{"adapters_in_stages", with_adapters(in_stages(llama(), all_stages()))},
                      AsyncRanks{"documents_on_shards", with_documents(sharded(llama()))},
                      AsyncRanks{"dropout_on_shards", dropping(recomputing(sharded(llama())))},
                      AsyncRanks{"dropout_on_tensors", dropping(laid_out(deep(gpt2()), tensors()))},
                      AsyncRanks{"dropout_in_stages", dropping(in_stages(llama(), all_stages()))},
                      AsyncRanks{"documents_in_stages", with_documents(in_stages(llama(), all_stages()))},
                      AsyncRanks{"stages", in_stages(llama(), all_stages())},
                      AsyncRanks{"interleaved", in_stages(llama(), interleaved(), 6)},
                      AsyncRanks{"tied_stages", in_stages(gpt2(), stages_of_tensors())},
                      AsyncRanks{"stages_of_shards", rounded(in_stages(llama(), stages_of_shards()))}),
    [](const auto& info) { return std::string(info.param.name); });

// The batch grows and shrinks again: the middle of a step is captured later than its ends.
TEST(GraphsOfRanks, FollowABatchThatGrows) {
  for (RunConfig config : {sharded(llama()), laid_out(deep(gpt2()), 1), in_stages(llama(), all_stages())}) {
    config.train.grad_accum = 4 * world->size();
    Together plain(config);
    config.train.has_graph = true;
    Together graphs(config);
    for (const int64_t part : {2, 2, 4, 4, 2})
      for (Together* each : {&plain, &graphs}) {
        each->run.trainer.submit(
            each->run.loader,
            {.micros = part * world->size(), .inputs = {.lr = config.optimizer.lr}, .is_asynchronous = true});
        each->collect();
      }
    EXPECT_EQ(graphs.weights_here(), plain.weights_here());
  }
}

// A replayed step calls NCCL for the verdict and the update only: all other collectives are in graphs.
TEST(GraphsOfRanks, HoldAllCollectivesOfThePasses) {
  if (!have_own_gpus()) GTEST_SKIP() << "the ranks share a GPU";
  for (const RunConfig& c : {laid_out(deep(llama()), 1), sharded(gpt2()), sharded(llama(), 2),
                             laid_out(deep(llama()), tensors())}) {
    RunConfig config = c;
    config.train.has_graph = true;
    Together graphs(config);
    graphs.asynchronous(2);
    simulated_nccl::take_record();
    graphs.submit(true);
    EXPECT_THAT(simulated_nccl::take_record(), ElementsAre("all_gather"));  // the verdict
    graphs.collect();
    EXPECT_THAT(simulated_nccl::take_record(),
                SizeIs(Gt(1)));  // ends of the graphs' collectives and of the verdict
  }
}

}  // namespace
}  // namespace ingot
