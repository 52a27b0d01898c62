// Pipelines, and products of every axis, on simulated devices, through the host and over a simulated NCCL.
#include <algorithm>
#include <cstdlib>

#include "ingot/core/staging.h"
#include "tests/parallel/mpi/hand_over.h"
#include "tests/simulated_cuda/mpi/layout_cases.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

// Four units, and micro-batches for every schedule on four ranks.
RunConfig deep(RunConfig c) {
  c = small(c, 2);
  c.train.grad_accum = 4;
  return c;
}
// Eight units, for two stages on each of four ranks.
RunConfig deepest(RunConfig c) {
  c = deep(c);
  c.model.layers = 6;
  return c;
}
RunConfig short_in_fp8(RunConfig c) {
  c = in(c, DType::bf16);
  c.model.context = 16;
  c.precision.fp8.recipe = Fp8Recipe::kTensorwise;
  return c;
}

ParallelConfig gpipe() { return stages(4, PipelineKind::kGpipe); }
ParallelConfig one_f_one_b() { return stages(4, PipelineKind::kOneFOneB); }
ParallelConfig interleaved() { return stages(4, PipelineKind::kInterleaved, 2); }
ParallelConfig stages_of_replicas() { return stages(2, PipelineKind::kOneFOneB); }
ParallelConfig stages_of_tensors() { return stages(2, PipelineKind::kOneFOneB, 1, 2); }
ParallelConfig stages_of_shards() {
  ParallelConfig c = stages_of_replicas();
  std::swap(c.dp, c.fsdp);
  return c;
}

INSTANTIATE_TEST_SUITE_P(
    Stages, SimulatedLayout,
    ::testing::Values(
        DeviceCase{"gpipe", deep(llama()), gpipe}, DeviceCase{"one_f_one_b", deep(llama()), one_f_one_b},
        DeviceCase{"interleaved", deepest(llama()), interleaved},
        DeviceCase{"tied", deep(gpt2()), one_f_one_b},
        DeviceCase{"recomputing", recomputing(deep(llama())), one_f_one_b},
        DeviceCase{"bf16", in(deep(gpt2()), DType::bf16), one_f_one_b},
        DeviceCase{"fp8", short_in_fp8(deep(llama())), one_f_one_b},
        DeviceCase{"adafactor", deep(with_rule(llama(), "adafactor")), one_f_one_b},
        DeviceCase{"adafactor_of_shards", deep(with_rule(gpt2(), "adafactor")), stages_of_shards},
        DeviceCase{"adafactor_of_replicas", deep(with_rule(gpt2(), "adafactor")), stages_of_replicas},
        DeviceCase{"adamw8bit_of_tensors", in_8bit(deep(llama())), stages_of_tensors},
        DeviceCase{"of_replicas", deep(gpt2()), stages_of_replicas},
        DeviceCase{"adapters", with_adapters(deep(gpt2()), {"blocks.1.*"}), one_f_one_b},
        DeviceCase{"of_tensors", deep(llama()), stages_of_tensors},
        DeviceCase{"of_shards", deep(gpt2()), stages_of_shards}),
    [](const auto& info) { return std::string(info.param.name); });

// Each rank chooses what its own micro-batches in flight keep, within the budget of a rank.
TEST(SimulatedStages, AutoKeepsWhatFitsTheBudgetOfEachRank) {
  RunConfig config = deepest(llama());
  Training alone(config);
  const std::vector<double> want = alone.losses(2);
  config.parallel = one_f_one_b();
  config.train.device = Device::kCuda;
  config.activations.policy = RecomputePolicy::kAuto;  // everything is kept without a budget
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  const auto activations = [](const Training& run) {
    return run.trainer.layout().executor->arenas().front()->capacity_bytes();
  };
  const double most = world->max(static_cast<double>(activations(Training(config, mesh))));
  config.activations.budget_bytes = static_cast<int64_t>(0.7 * most);
  Training fitting(config, mesh);
  EXPECT_LE(activations(fitting), static_cast<size_t>(config.activations.budget_bytes));
  const std::vector<double> got = fitting.losses(2);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << i;
}

// The host submits all passes and messages of a step before the first message has arrived.
TEST(SimulatedStages, TheHostSubmitsAStepWithoutWaiting) {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  if (!gpus || std::string(gpus) != "own" || world->size() == 1) GTEST_SKIP() << "the ranks share a GPU";
  RunConfig config = deep(llama());
  config.parallel = one_f_one_b();
  config.train.device = Device::kCuda;
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training together(config, mesh);
  together.losses(1);  // goes through the host
  simulated_nccl::take_record();
  together.trainer.submit(together.loader, {.micros = config.train.grad_accum});
  const std::vector<std::string> record = simulated_nccl::take_record();
  const bool is_end = world->rank() == 0 || world->rank() + 1 == world->size();
  // With each of its neighbours a rank exchanges an activation and a gradient per micro-batch.
  EXPECT_EQ(std::ranges::count(record, "messages"), (is_end ? 2 : 4) * config.train.grad_accum);
  EXPECT_EQ(std::ranges::count(record, "end messages"), 0);
  together.trainer.collect(together.loader);
  const auto& report = together.trainer.layout().executor->pipeline();
  EXPECT_GT(report->step_s, 0);
  EXPECT_GE(report->wait_s, 0);
  EXPECT_LE(report->wait_s, report->step_s);
  together.trainer.discard();
}

// Micro-batches of two rows of 128 tokens, for the executor of a run.
class StepsWithDocuments {
 public:
  static constexpr int64_t kRows = 2, kContext = 128;

  explicit StepsWithDocuments(const RunConfig& config)
      : mesh_(Mesh::make(*world, mesh_shape(config.parallel))), run_(config, mesh_) {}

  // Runs a step with a micro-batch for each number, that of the documents of its second row. Returns the
  // first rows that this rank's forward passes had, if they are looked at.
  std::vector<std::vector<int32_t>> run(const std::vector<int64_t>& documents, bool is_looked_at) {
    const Layout& layout = run_.trainer.layout();
    std::vector<std::vector<int32_t>> seen;
    auto next = documents.begin();
    ExecutorStep step{.params = *layout.params,
                      .stream = *layout.stream,
                      .micros = std::ssize(documents),
                      .grad_scale = 1,
                      .next = [&]() -> const Batch& { return make_batch(*next++); }};
    step.context = [&](int64_t) {
      return LayerContext{.params = *layout.params,
                          .region = *layout.region,
                          .scratch = scratch_,
                          .stream = *layout.stream,
                          .dropout = {}};
    };
    if (is_looked_at)
      step.after_forward = [&](const Transformer::Saved&, const MicroBatch& batch, LossSums&) {
        seen.emplace_back();
        if (!batch.cu_seqlens) return;
        const Tensor host = staging_.read(batch.cu_seqlens, *layout.stream);
        seen.back().assign(host.as<int32_t>(), host.as<int32_t>() + host.elements());
      };
    layout.executor->run(step);
    layout.executor->losses(*layout.stream);
    return seen;
  }
  // The same; returns true if its messages were those of NCCL.
  bool is_direct(const std::vector<int64_t>& documents) {
    simulated_nccl::take_record();
    run(documents, false);
    return std::ranges::count(simulated_nccl::take_record(), "messages") > 0;
  }

 private:
  const Batch& make_batch(int64_t documents) {
    for (int64_t i = 0; i < kRows * kContext; ++i) {
      const int64_t t = i % kContext, length = i < kContext ? kContext : kContext / documents;
      ids_[static_cast<size_t>(i)] = static_cast<int32_t>(i % 64);
      starts_[static_cast<size_t>(i)] = static_cast<int32_t>(t / length * length);
    }
    const auto tensor = [](std::vector<int32_t>& v) {
      return Tensor(v.data(), DType::i32, {kRows, kContext});
    };
    batch_ = {.tokens = tensor(ids_), .targets = tensor(ids_), .doc_start = tensor(starts_)};
    return batch_;
  }

  Mesh mesh_;
  Training run_;
  Arena scratch_{"scratch", size_t{64} << 20, Memory::kDevice};
  Staging staging_;
  std::vector<int32_t> ids_ = std::vector<int32_t>(kRows * kContext),
                       starts_ = std::vector<int32_t>(kRows * kContext);
  Batch batch_;
};

RunConfig with_documents() {
  RunConfig config = deep(llama());
  config.parallel = one_f_one_b();
  config.train.device = Device::kCuda;
  config.data.has_document_mask = true;
  config.model.context = StepsWithDocuments::kContext;
  return config;
}

TEST(SimulatedStages, PassesHaveTheFirstRowsOfTheirDocuments) {
  StepsWithDocuments steps(with_documents());
  const std::vector<std::vector<int32_t>> want{
      {0, 128, 256}, {0, 128, 192, 256, 256}, {}, {0, 128, 256, 256, 256}};
  EXPECT_EQ(steps.run({1, 2, 4, 1}, true), want);  // 256 tokens have at most four documents
}

// Attention chooses kernels for a number of documents when it meets it, and the host waits then.
TEST(SimulatedStages, OnlyNewNumbersOfDocumentsGoThroughTheHost) {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  if (!gpus || std::string(gpus) != "own" || world->size() == 1) GTEST_SKIP() << "the ranks share a GPU";
  StepsWithDocuments steps(with_documents());
  EXPECT_FALSE(steps.is_direct({1, 1, 1, 1})) << "the first step";
  EXPECT_TRUE(steps.is_direct({1, 1, 1, 1}));
  EXPECT_FALSE(steps.is_direct({1, 1, 1, 2}));
  EXPECT_TRUE(steps.is_direct({2, 1, 2, 1}));
  EXPECT_FALSE(steps.is_direct({1, 4, 1, 1})) << "the mask";
  EXPECT_TRUE(steps.is_direct({4, 2, 1, 4}));
}

// A run passes from devices to one CPU rank and on to devices in another layout.
TEST(SimulatedStages, CheckpointsPassBetweenLayoutsAndTheCpu) {
  constexpr int kPart = 2;
  const RunConfig config = deep(llama());
  Training undisturbed(config);
  const std::vector<double> want = undisturbed.losses(3 * kPart);
  const SharedFolder folder;
  std::vector<double> got;
  fs::path checkpoint;
  for (const ParallelConfig& layout : {stages_of_tensors(), ParallelConfig{}, sharing_of_shards()}) {
    RunConfig here = config;
    here.parallel = layout;
    const bool is_alone = layout.ranks() == 1;
    if (!is_alone) here.train.device = Device::kCuda;
    Mesh mesh = Mesh::make(*world, is_alone ? mesh_shape(replicas()) : mesh_shape(layout));
    Training run(here, is_alone ? parallelize(here) : parallelize(here, mesh, Backing::kMemory, {1, 2, 1}));
    if (!checkpoint.empty()) resume(run, checkpoint);
    for (const double loss : run.losses(kPart)) got.push_back(loss);
    checkpoint = save(run, folder.path, std::ssize(got));
  }
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << i;
}

}  // namespace
}  // namespace ingot
