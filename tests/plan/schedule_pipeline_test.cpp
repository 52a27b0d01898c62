// The lists of parallel/pipeline_schedule.h in virtual time, against the closed form and
// tests/reference/pipeline_simulation.h.
#include <gtest/gtest.h>

#include <vector>

#include "ingot/plan/schedule_simulation.h"
#include "tests/plan/jobs.h"
#include "tests/reference/pipeline_simulation.h"

namespace ingot {
namespace {

using plan_test::pipeline_job;
using plan_test::plain_hardware;

std::vector<PipelineShape> shapes() {
  return {{.kind = PipelineKind::kGpipe, .ranks = 4, .chunks = 1, .micros = 6},
          {.kind = PipelineKind::kOneFOneB, .ranks = 2, .chunks = 1, .micros = 1},
          {.kind = PipelineKind::kOneFOneB, .ranks = 4, .chunks = 1, .micros = 8},
          {.kind = PipelineKind::kOneFOneB, .ranks = 8, .chunks = 1, .micros = 5},
          {.kind = PipelineKind::kInterleaved, .ranks = 2, .chunks = 2, .micros = 4},
          {.kind = PipelineKind::kInterleaved, .ranks = 4, .chunks = 3, .micros = 8}};
}

// The closed form knows no limit of memory, which delays interleaved pipelines of more than two ranks.
TEST(SchedulePipeline, EqualStagesHaveTheBubbleOfTheClosedForm) {
  for (const PipelineShape& shape : shapes()) {
    const plan_test::StageCosts costs{.forward_s = 1, .backward_s = 2, .is_memory_bounded = false};
    const ScheduleOutcome outcome = simulate_schedule(pipeline_job(shape, costs), plain_hardware());
    const double p = shape.ranks, passes = static_cast<double>(shape.chunks * shape.micros);
    EXPECT_NEAR(outcome.bubble(), (p - 1) / (passes + p - 1), 1e-12);
    EXPECT_NEAR(outcome.step_s, 3 * (passes + p - 1), 1e-9);
    EXPECT_EQ(outcome.exposed(), 0);
  }
}

// Messages of no bytes take only their latency. Both simulations agree if that is 0; otherwise a sender here
// meets its receiver, and there the message leaves at once, so the step there is a lower bound.
TEST(SchedulePipeline, AgreesWithTheSimulationOfPipelines) {
  Hardware hardware = plain_hardware();
  for (const double message_s : {0.0, 0.1})
    for (const PipelineShape& shape : shapes()) {
      hardware.node.ring_latency_s[0] = message_s;
      std::vector<std::vector<PipelineOp>> lists;
      for (int r = 0; r < shape.ranks; ++r) lists.push_back(pipeline_schedule(shape, r));
      const auto stages = static_cast<size_t>(shape.stages());
      const PipelineOutcome wanted = simulate_pipeline(shape, lists,
                                                       {.forward_s = std::vector<double>(stages, 0.9),
                                                        .backward_s = std::vector<double>(stages, 2.3),
                                                        .message_s = message_s});
      const ScheduleOutcome outcome =
          simulate_schedule(pipeline_job(shape, {.forward_s = 0.9, .backward_s = 2.3}), hardware);
      const double messages = static_cast<double>(4 * shape.chunks * (shape.micros + shape.ranks));
      EXPECT_GE(outcome.step_s, wanted.step_s - 1e-9);
      EXPECT_LE(outcome.step_s, wanted.step_s + messages * message_s + 1e-9);
      for (size_t r = 0; r < wanted.busy_s.size(); ++r)
        EXPECT_NEAR(outcome.ranks[r].busy_s, wanted.busy_s[r], 1e-9);
    }
}

TEST(SchedulePipeline, A3DStepOn1024RanksFinishes) {
  const plan_test::MeshJob mesh{.micros = 8, .layers = 4};
  const RankPrograms job = plan_test::mesh_job(mesh);
  ASSERT_EQ(job.programs.size(), 1024u);
  const Hardware hardware = find_hardware("h100-sxm");
  const ScheduleOutcome outcome = simulate_schedule(job, hardware);
  for (const RankOutcome& rank : outcome.ranks)
    ASSERT_NEAR(rank.busy_s + rank.exposed_s + rank.idle_s, outcome.step_s, 1e-9);
  // Every pass has four layers of two halves with a ring over eight devices after each.
  const double passes = 8 + 4 - 1, halves = 2 * 4;
  const double reduce_s = 8.4e-6 + 14 * 3.4e-6 + 14.0 / 8 * 67108864 / (450e9 * 0.8);
  const double least_s = passes * halves * (1.5 * mesh.layer_s + 2 * reduce_s);
  EXPECT_GE(outcome.step_s, least_s);
  EXPECT_LE(outcome.step_s, 1.6 * least_s);  // gradients of four layers over one NIC, and the update
  const KindOutcome& messages = outcome.kinds[static_cast<size_t>(CommOperation::Kind::kSend)];
  EXPECT_EQ(messages.operations, 256 * 3 * 8 * 2);  // pipelines, boundaries, micro-batches, both ways
  EXPECT_EQ(messages.bytes, uint64_t{256} * 3 * 8 * 2 * (67108864 / 8));
  // Equal input gives equal output.
  EXPECT_EQ(simulate_schedule(job, hardware).step_s, outcome.step_s);
}

}  // namespace
}  // namespace ingot
