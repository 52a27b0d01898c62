#include "ingot/parallel/pipeline_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ingot/core/error.h"
#include "ingot/core/philox.h"
#include "tests/reference/error_of.h"
#include "tests/reference/pipeline_simulation.h"

namespace ingot {
namespace {

using Kind = PipelineOp::Kind;
using Lists = std::vector<std::vector<PipelineOp>>;

Lists lists_of(const PipelineShape& shape) {
  Lists lists;
  for (int r = 0; r < shape.ranks; ++r) lists.push_back(pipeline_schedule(shape, r));
  return lists;
}

PipelineCosts equal_costs(const PipelineShape& shape, double forward_s, double backward_s) {
  const auto stages = static_cast<size_t>(shape.stages());
  return {.forward_s = std::vector<double>(stages, forward_s),
          .backward_s = std::vector<double>(stages, backward_s)};
}

// Expects that the simulation finishes with the activations and the bubble of the formulas. The
// simulation throws unless each micro-batch runs forward once and backward once on every stage, in order.
void expect_as_in_theory(const PipelineShape& shape) {
  const PipelineOutcome outcome = simulate_pipeline(shape, lists_of(shape), equal_costs(shape, 1, 2));
  const std::string what = fmt::format("kind {}, p {}, v {}, m {}", static_cast<int>(shape.kind), shape.ranks,
                                       shape.chunks, shape.micros);
  const double p = shape.ranks, vm = static_cast<double>(shape.chunks * shape.micros);
  ASSERT_NEAR(outcome.bubble(), (p - 1) / (vm + p - 1), 1e-12) << what;
  ASSERT_DOUBLE_EQ(shape.bubble(), (p - 1) / (vm + p - 1));
  for (int r = 0; r < shape.ranks; ++r) {
    const int64_t passes = shape.micros * shape.chunks;
    int64_t kept = passes;
    if (shape.kind == PipelineKind::kOneFOneB) kept = shape.ranks - r;
    if (shape.kind == PipelineKind::kInterleaved)
      kept = 2 * (shape.ranks - r - 1) + (shape.chunks - 1) * shape.ranks + 1;
    ASSERT_EQ(outcome.in_flight[static_cast<size_t>(r)], std::min(passes, kept)) << what << ", rank " << r;
  }
}

void expect_all_kinds(int p, int64_t m) {
  expect_as_in_theory({.kind = PipelineKind::kGpipe, .ranks = p, .micros = m});
  expect_as_in_theory({.kind = PipelineKind::kOneFOneB, .ranks = p, .micros = m});
  for (int v : {2, 4})
    if (p > 1 && m % p == 0)
      expect_as_in_theory({.kind = PipelineKind::kInterleaved, .ranks = p, .chunks = v, .micros = m});
}

TEST(PipelineSchedule, BubbleAndActivationsFollowTheory) {
  for (int p : {1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64})
    for (int64_t m : {1, 2, 3, 4, 7, 8, 15, 16, 24, 31, 64, 128, 255, 256}) expect_all_kinds(p, m);
}

TEST(SlowPipelineSchedule, EveryShapeUpTo64RanksAnd256MicroBatchesFollowsTheory) {
  for (int p = 1; p <= 64; ++p)
    for (int64_t m = 1; m <= 256; ++m) expect_all_kinds(p, m);
}

std::string text(const std::vector<PipelineOp>& list) {
  std::string all;
  for (const PipelineOp& op : list)
    if (op.kind == Kind::kForward || op.kind == Kind::kBackward)
      all += fmt::format("{}{}{} ", op.kind == Kind::kForward ? 'F' : 'B', op.micro,
                         op.chunk > 0 ? std::string(static_cast<size_t>(op.chunk), '\'') : "");
  return all;
}

// Compares with the orders in the figures of the papers.
TEST(PipelineSchedule, OrdersEqualThoseOfThePapers) {
  const auto list = [](PipelineKind kind, int p, int v, int64_t m, int rank) {
    return text(pipeline_schedule({.kind = kind, .ranks = p, .chunks = v, .micros = m}, rank));
  };
  EXPECT_EQ(list(PipelineKind::kGpipe, 3, 1, 3, 1), "F0 F1 F2 B0 B1 B2 ");
  EXPECT_EQ(list(PipelineKind::kOneFOneB, 4, 1, 6, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 ");
  EXPECT_EQ(list(PipelineKind::kOneFOneB, 4, 1, 6, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5 ");
  EXPECT_EQ(list(PipelineKind::kInterleaved, 2, 2, 4, 0),
            "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3 ");
  EXPECT_EQ(list(PipelineKind::kInterleaved, 2, 2, 4, 1),
            "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3 ");
}

TEST(PipelineSchedule, MessagesStandAroundTheirPass) {
  const std::vector<PipelineOp> want = {{Kind::kReceiveActivation, 0, 0}, {Kind::kForward, 0, 0},
                                        {Kind::kSendActivation, 0, 0},    {Kind::kReceiveGradient, 0, 0},
                                        {Kind::kBackward, 0, 0},          {Kind::kSendGradient, 0, 0}};
  EXPECT_EQ(pipeline_schedule({.kind = PipelineKind::kGpipe, .ranks = 3, .micros = 1}, 1), want);
  const std::vector<PipelineOp> alone = {{Kind::kForward, 0, 0}, {Kind::kBackward, 0, 0}};
  EXPECT_EQ(pipeline_schedule({.ranks = 1, .micros = 1}, 0), alone);
}

TEST(PipelineSimulation, CountsMessagesAndUnequalStages) {
  const PipelineShape shape{.kind = PipelineKind::kGpipe, .ranks = 2, .micros = 3};
  PipelineCosts costs = equal_costs(shape, 1, 2);
  costs.message_s = 0.5;
  EXPECT_DOUBLE_EQ(simulate_pipeline(shape, lists_of(shape), costs).step_s, 4 * 3 + 2 * 0.5);
  costs.message_s = 0;
  costs.forward_s[1] = 3;  // rank 1 is busy from 1 s on; rank 0's last backward takes 2 s more
  EXPECT_DOUBLE_EQ(simulate_pipeline(shape, lists_of(shape), costs).step_s, 1 + 3 * (3 + 2) + 2);
}

std::string failure(const PipelineShape& shape, const Lists& lists) {
  return error_of([&] { simulate_pipeline(shape, lists, equal_costs(shape, 1, 2)); });
}

// The simulation detects each kind of broken list and names it.
TEST(PipelineSimulation, FindsBrokenLists) {
  const PipelineShape shape{.kind = PipelineKind::kOneFOneB, .ranks = 2, .micros = 2};
  const Lists good = lists_of(shape);
  EXPECT_EQ(failure(shape, good), "no error");

  Lists lists = good;  // deadlock: rank 1 waits for activation 1, rank 0 for gradient 0
  lists[1] = {{Kind::kReceiveActivation, 0, 0}, {Kind::kForward, 0, 0},     {Kind::kReceiveActivation, 1, 0},
              {Kind::kForward, 1, 0},           {Kind::kBackward, 0, 0},    {Kind::kSendGradient, 0, 0},
              {Kind::kBackward, 1, 0},          {Kind::kSendGradient, 1, 0}};
  lists[0] = {{Kind::kForward, 0, 0},         {Kind::kSendActivation, 0, 0}, {Kind::kReceiveGradient, 0, 0},
              {Kind::kBackward, 0, 0},        {Kind::kForward, 1, 0},        {Kind::kSendActivation, 1, 0},
              {Kind::kReceiveGradient, 1, 0}, {Kind::kBackward, 1, 0}};
  EXPECT_EQ(
      failure(shape, lists),
      "pipeline: ranks wait for each other; rank 0: receive gradient of micro-batch 0, chunk 0; rank 1: "
      "receive activation of micro-batch 1, chunk 0");

  lists = good;
  std::erase_if(lists[0], [](const PipelineOp& op) { return op.kind == Kind::kBackward && op.micro == 1; });
  EXPECT_THAT(failure(shape, lists),
              ::testing::HasSubstr("rank 0 runs chunk 0 forward 2 times and backward 1"));
  lists = good;
  std::erase_if(lists[1], [](const PipelineOp& op) { return op.kind == Kind::kReceiveActivation; });
  EXPECT_THAT(failure(shape, lists),
              ::testing::HasSubstr("rank 1 goes forward with what it has not received"));
  lists = good;
  for (PipelineOp& op : lists[0])
    if (op.kind == Kind::kSendActivation) op.micro = 1 - op.micro;
  EXPECT_THAT(failure(shape, lists), ::testing::HasSubstr("rank 0 sends what it has not"));
  lists[0] = {{Kind::kForward, 0, 0},         {Kind::kForward, 1, 0},         {Kind::kSendActivation, 1, 0},
              {Kind::kSendActivation, 0, 0},  {Kind::kReceiveGradient, 0, 0}, {Kind::kBackward, 0, 0},
              {Kind::kReceiveGradient, 1, 0}, {Kind::kBackward, 1, 0}};
  EXPECT_THAT(
      failure(shape, lists),
      ::testing::HasSubstr("rank 1 wants micro-batch 0 of stage 0, micro-batch 1 of stage 0 arrives"));
  lists = good;
  for (PipelineOp& op : lists[0])
    if (op.kind == Kind::kForward) op.micro = 1 - op.micro;
  EXPECT_THAT(failure(shape, lists), ::testing::HasSubstr("rank 0 goes forward with micro-batch 1 after -1"));
  PipelineShape gpipe = shape;
  gpipe.kind = PipelineKind::kGpipe;
  EXPECT_THAT(failure(shape, lists_of(gpipe)),
              ::testing::HasSubstr("rank 1 keeps 2 micro-batches, at most 1"));
}

TEST(PipelineShape, AShapeThatDoesNotFitIsRefused) {
  const auto refusal = [](const PipelineShape& shape) -> std::string {
    return usage_error([&] { shape.validate(); });
  };
  const PipelineKind interleaved = PipelineKind::kInterleaved;
  EXPECT_EQ(refusal({.ranks = 4, .micros = 3}), "no error");
  EXPECT_THAT(refusal({.kind = interleaved, .ranks = 4, .chunks = 2, .micros = 6}),
              ::testing::HasSubstr("train.grad_accum must be a multiple of parallel.pp = 4"));
  EXPECT_THAT(refusal({.kind = interleaved, .ranks = 4, .chunks = 2, .micros = 6}),
              ::testing::HasSubstr("got 6; the nearest valid value is 8"));
  EXPECT_THAT(refusal({.kind = interleaved, .ranks = 4, .micros = 8}),
              ::testing::HasSubstr("parallel.chunks"));
  EXPECT_THAT(refusal({.kind = interleaved, .chunks = 2, .micros = 8}),
              ::testing::HasSubstr("parallel.pp must be at least 2"));
  EXPECT_THAT(refusal({.ranks = 4, .chunks = 2, .micros = 8}), ::testing::HasSubstr("parallel.chunks"));
  EXPECT_THAT(refusal({.ranks = 0, .micros = 8}), ::testing::HasSubstr("parallel.pp"));
  EXPECT_THAT(refusal({.ranks = 2, .micros = 0}), ::testing::HasSubstr("grad_accum"));
}

TEST(PipelineSchedule, ASingleMicroBatchPassesAllStagesOnceEachWay) {
  const PipelineShape shape{.kind = PipelineKind::kInterleaved, .ranks = 2, .chunks = 2, .micros = 4};
  EXPECT_THAT(lone_micro_schedule(shape, 0, 3),
              ::testing::ElementsAre(
                  PipelineOp{Kind::kForward, 3, 0}, PipelineOp{Kind::kSendActivation, 3, 0},
                  PipelineOp{Kind::kReceiveActivation, 3, 1}, PipelineOp{Kind::kForward, 3, 1},
                  PipelineOp{Kind::kSendActivation, 3, 1}, PipelineOp{Kind::kReceiveGradient, 3, 1},
                  PipelineOp{Kind::kBackward, 3, 1}, PipelineOp{Kind::kSendGradient, 3, 1},
                  PipelineOp{Kind::kReceiveGradient, 3, 0}, PipelineOp{Kind::kBackward, 3, 0}));
}

double dearest(const std::vector<double>& costs, const std::vector<int>& firsts) {
  double most = 0;
  for (size_t s = 0; s + 1 < firsts.size(); ++s)
    most = std::max(most, std::accumulate(costs.begin() + firsts[s], costs.begin() + firsts[s + 1], 0.0));
  return most;
}

// Returns the lowest cost of the most expensive stage over all splits of the units from `first` on
// into `stages`.
double best_by_trying(const std::vector<double>& costs, int first, int stages) {
  const int units = static_cast<int>(costs.size());
  if (stages == 1) return std::accumulate(costs.begin() + first, costs.end(), 0.0);
  double best = 1e300, own = 0;
  for (int end = first + 1; end <= units - stages + 1; ++end) {
    own += costs[static_cast<size_t>(end) - 1];
    best = std::min(best, std::max(own, best_by_trying(costs, end, stages - 1)));
  }
  return best;
}

TEST(SplitUnits, IsAsGoodAsExhaustiveSearch) {
  const RandomKey key{.seed = 5, .purpose = Purpose::kSample, .stream = 0, .step = 0};
  uint64_t draw = 0;
  for (int units : {1, 2, 3, 5, 8, 11})
    for (int stages = 1; stages <= units; ++stages)
      for (int round = 0; round < 10; ++round) {
        std::vector<double> costs(static_cast<size_t>(units));
        for (double& cost : costs) cost = random_word(key, draw++) % 10;  // costs include ties and zeros
        const std::vector<int> firsts = split_units(costs, stages);
        ASSERT_EQ(std::ssize(firsts), stages + 1);
        EXPECT_EQ(firsts.front(), 0);
        EXPECT_EQ(firsts.back(), units);
        for (int s = 0; s < stages; ++s)
          EXPECT_LT(firsts[static_cast<size_t>(s)], firsts[static_cast<size_t>(s) + 1]);
        EXPECT_DOUBLE_EQ(dearest(costs, firsts), best_by_trying(costs, 0, stages));
      }
}

TEST(SplitUnits, WeighsTheHeadAgainstBlocks) {
  // Costs of the embedding, six blocks, and a head that costs as much as three blocks.
  EXPECT_EQ(split_units(std::vector<double>{0.1, 1, 1, 1, 1, 1, 1, 3}, 3), (std::vector<int>{0, 4, 7, 8}));
  EXPECT_THROW(split_units(std::vector<double>{1, 1}, 3), Error);
  EXPECT_THROW(split_units(std::vector<double>{1, 1}, 0), Error);
}

}  // namespace
}  // namespace ingot
