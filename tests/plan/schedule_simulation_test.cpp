// Tests the virtual time of schedules against closed forms, hand-made cases and the pipeline's own simulation.
#include "ingot/plan/schedule_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ingot/core/error.h"
#include "ingot/parallel/pipeline_schedule.h"
#include "ingot/profile/pipeline_simulation.h"

namespace ingot {
namespace {

using Kind = CommOperation::Kind;
using testing::HasSubstr;

constexpr double kGiga = 1e9;

// One GB/s and no latencies, so that a GB takes a second.
Hardware plain(int devices_per_node, int nics_per_node = 1) {
  Hardware h;
  h.devices_per_node = devices_per_node;
  h.nics_per_node = nics_per_node;
  h.link_gb_s = h.nic_gb_s = 1;
  h.link_us = h.nic_us = h.collective_us = 0;
  return h;
}

// Builds the program of a rank.
struct Builder {
  RankProgram program{.names = {"work"}, .ops = {}};
  uint32_t tickets = 0;

  Builder& compute(double s) {
    program.ops.push_back({.kind = ProgramOp::Kind::kCompute, .seconds = s});
    return *this;
  }
  uint32_t start(Kind kind, double gb, int group = 0, int peer = 0) {
    program.names.push_back("op" + std::to_string(tickets));
    program.ops.push_back({.kind = ProgramOp::Kind::kStart,
                           .name = static_cast<int>(program.names.size()) - 1,
                           .operation = kind,
                           .group = group,
                           .peer = peer,
                           .bytes = static_cast<uint64_t>(gb * kGiga),
                           .ticket = tickets});
    return tickets++;
  }
  Builder& wait(uint32_t ticket) {
    program.ops.push_back({.kind = ProgramOp::Kind::kWait, .ticket = ticket});
    return *this;
  }
  Builder& run(Kind kind, double gb, int group = 0, int peer = 0) {
    return wait(start(kind, gb, group, peer));
  }
};

// A job in which group k of every rank is groups[k] of the list that it is in.
RankPrograms job_of(const std::vector<Builder>& ranks, const std::vector<std::vector<int>>& members) {
  RankPrograms job;
  job.members = members;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    job.programs.push_back(std::make_shared<RankProgram>(ranks[static_cast<size_t>(r)].program));
    std::vector<int> own;
    for (int g = 0; g < static_cast<int>(members.size()); ++g)
      if (std::ranges::find(members[static_cast<size_t>(g)], r) != members[static_cast<size_t>(g)].end())
        own.push_back(g);
    job.groups.push_back(own);
  }
  return job;
}

std::string schedule_error(const RankPrograms& job, const Hardware& hardware) {
  try {
    simulate_schedule(job, hardware);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Collective, OfOneNodeTakesTheRingsTime) {
  const std::vector<std::vector<int>> all{{0, 1, 2, 3}};
  const auto step = [&](Kind kind, Hardware hardware) {
    Builder rank;
    rank.run(kind, 4);
    return simulate_schedule(job_of({rank, rank, rank, rank}, all), hardware).step_s;
  };
  EXPECT_DOUBLE_EQ(step(Kind::kAllGather, plain(4)), 3);
  EXPECT_DOUBLE_EQ(step(Kind::kReduceScatter, plain(4)), 3);
  EXPECT_DOUBLE_EQ(step(Kind::kAllReduce, plain(4)), 6);
  EXPECT_DOUBLE_EQ(step(Kind::kAllToAll, plain(4)), 3);
  EXPECT_DOUBLE_EQ(step(Kind::kBroadcast, plain(4)), 4);
  Hardware slow = plain(4);
  slow.link_us = 1e5;
  slow.collective_us = 1e6;
  EXPECT_NEAR(step(Kind::kAllGather, slow), 3 + 1 + 3 * 0.1, 1e-9);
  EXPECT_NEAR(step(Kind::kAllReduce, slow), 6 + 1 + 6 * 0.1, 1e-9);
}

TEST(Collective, BetweenNodesUsesEveryCardOfTheNode) {
  Builder rank;
  rank.run(Kind::kAllGather, 8);
  const RankPrograms job = job_of({rank, rank, rank, rank}, {{0, 1, 2, 3}});
  EXPECT_DOUBLE_EQ(simulate_schedule(job, plain(2, 1)).step_s, 6);  // 8 GB * 3/4 through one card
  Hardware fast_links = plain(2, 2);
  fast_links.link_gb_s = 100;
  EXPECT_DOUBLE_EQ(simulate_schedule(job, fast_links).step_s, 3);  // through two
}

TEST(Collective, TakesATreeWhereStepsCostMost) {
  Hardware hardware = plain(1);
  hardware.nic_us = 1e6;  // a step takes a second
  Builder rank;
  rank.run(Kind::kAllReduce, 0);
  std::vector<int> all;
  for (int r = 0; r < 16; ++r) all.push_back(r);
  // The ring has 2 * 15 steps, the tree 2 * log2(16).
  EXPECT_DOUBLE_EQ(simulate_schedule(job_of(std::vector<Builder>(16, rank), {all}), hardware).step_s, 8);
}

TEST(Collective, LeavesItsRackThroughTheUplink) {
  Hardware hardware = plain(1);
  hardware.nodes_per_rack = 2;
  hardware.rack_gb_s = 0.5;
  Builder rank;
  rank.run(Kind::kAllGather, 4);
  EXPECT_DOUBLE_EQ(simulate_schedule(job_of({rank, rank, rank, rank}, {{0, 1, 2, 3}}), hardware).step_s, 6);
  EXPECT_DOUBLE_EQ(simulate_schedule(job_of({rank, rank}, {{0, 1}}), hardware).step_s, 2) << "within a rack";
}

TEST(Links, AreSharedByOperationsThatUseThemAtATime) {
  Builder rank;
  rank.run(Kind::kAllGather, 2);
  const std::vector<Builder> ranks(4, rank);
  // Ranks 0 and 1 are on node 0, 2 and 3 on node 1. Both groups cross.
  EXPECT_DOUBLE_EQ(simulate_schedule(job_of(ranks, {{0, 2}, {1, 3}}), plain(2, 1)).step_s, 2) << "one card";
  EXPECT_DOUBLE_EQ(simulate_schedule(job_of(ranks, {{0, 2}, {1, 3}}), plain(2, 2)).step_s, 1)
      << "a card each";
  EXPECT_DOUBLE_EQ(simulate_schedule(job_of(ranks, {{0, 1}, {2, 3}}), plain(2, 1)).step_s, 1)
      << "within the nodes";
}

TEST(Links, AreWhollyUsedByWhatIsLeft) {
  Builder small, large;
  small.run(Kind::kAllGather, 2);
  large.run(Kind::kAllGather, 6);
  // Each moves half of its bytes: 1 and 3 GB. The card gives 1/2 GB/s to each until 2 s, then all to the large.
  const ScheduleOutcome outcome =
      simulate_schedule(job_of({small, large, small, large}, {{0, 2}, {1, 3}}), plain(2, 1));
  EXPECT_DOUBLE_EQ(outcome.ranks[0].end_s, 2);
  EXPECT_DOUBLE_EQ(outcome.ranks[1].end_s, 4);
}

TEST(Overlap, HidesWhatFitsIntoTheComputing) {
  const auto outcome = [](double computing) {
    Builder rank;
    const uint32_t ticket = rank.start(Kind::kAllGather, 12);
    rank.compute(computing).wait(ticket);
    return simulate_schedule(job_of({rank, rank}, {{0, 1}}), plain(2));
  };
  EXPECT_DOUBLE_EQ(outcome(10).step_s, 10);
  EXPECT_DOUBLE_EQ(outcome(10).ranks[0].waited_s, 0);
  EXPECT_DOUBLE_EQ(outcome(4).step_s, 6);
  EXPECT_DOUBLE_EQ(outcome(4).ranks[0].waited_s, 2);
  EXPECT_DOUBLE_EQ(outcome(4).ranks[0].busy_s, 4);
  EXPECT_DOUBLE_EQ(outcome(4).ranks[0].operated_s, 6);
}

TEST(Overlap, OperationsOfAGroupRunInTheirOrder) {
  Builder rank;
  const uint32_t first = rank.start(Kind::kAllGather, 4), second = rank.start(Kind::kAllGather, 2);
  rank.wait(second).wait(first);
  EXPECT_DOUBLE_EQ(simulate_schedule(job_of({rank, rank}, {{0, 1}}), plain(2)).step_s, 3);
}

TEST(Waiting, IsForTheLastRank) {
  Builder early, late;
  early.compute(1).run(Kind::kAllReduce, 1);
  late.compute(5).run(Kind::kAllReduce, 1);
  const ScheduleOutcome outcome = simulate_schedule(job_of({early, late}, {{0, 1}}), plain(2));
  EXPECT_DOUBLE_EQ(outcome.step_s, 6);
  EXPECT_DOUBLE_EQ(outcome.ranks[0].waited_s, 5);
  EXPECT_DOUBLE_EQ(outcome.ranks[1].waited_s, 1);
}

// The pipeline's lists as programs: group 0 carries activations and group 1 gradients. As in Pipeline, a
// receive is posted ahead and a send is not waited for.
RankPrograms pipeline_job(const PipelineShape& shape, double forward_s, double backward_s) {
  std::vector<Builder> ranks(static_cast<size_t>(shape.ranks));
  std::vector<int> all;
  for (int r = 0; r < shape.ranks; ++r) {
    all.push_back(r);
    Builder& rank = ranks[static_cast<size_t>(r)];
    const int next = (r + 1) % shape.ranks, previous = (r + shape.ranks - 1) % shape.ranks;
    for (const PipelineOp& op : pipeline_schedule(shape, r)) switch (op.kind) {
        case PipelineOp::Kind::kReceiveActivation:
          rank.run(Kind::kReceive, 0, 0, previous);
          break;
        case PipelineOp::Kind::kReceiveGradient:
          rank.run(Kind::kReceive, 0, 1, next);
          break;
        case PipelineOp::Kind::kForward:
          rank.compute(forward_s);
          break;
        case PipelineOp::Kind::kBackward:
          rank.compute(backward_s);
          break;
        case PipelineOp::Kind::kSendActivation:
          rank.start(Kind::kSend, 0, 0, next);
          break;
        case PipelineOp::Kind::kSendGradient:
          rank.start(Kind::kSend, 0, 1, previous);
          break;
      }
  }
  return job_of(ranks, {all, all});
}

TEST(PipelinePrograms, TakeTheTimeOfThePipelinesSimulation) {
  for (const PipelineKind kind : {PipelineKind::kGpipe, PipelineKind::kOneFOneB, PipelineKind::kInterleaved})
    for (const int ranks : {2, 4}) {
      const PipelineShape shape{
          .kind = kind, .ranks = ranks, .chunks = kind == PipelineKind::kInterleaved ? 2 : 1, .micros = 8};
      const auto stages = static_cast<size_t>(shape.stages());
      std::vector<std::vector<PipelineOp>> lists;
      for (int r = 0; r < ranks; ++r) lists.push_back(pipeline_schedule(shape, r));
      const PipelineOutcome expected = simulate_pipeline(
          shape, lists,
          {.forward_s = std::vector<double>(stages, 1.0), .backward_s = std::vector<double>(stages, 2.0)});
      const ScheduleOutcome outcome = simulate_schedule(pipeline_job(shape, 1, 2), plain(8));
      EXPECT_DOUBLE_EQ(outcome.step_s, expected.step_s) << ranks << " ranks";
      double busy = 0;
      for (const RankOutcome& rank : outcome.ranks) busy += rank.busy_s;
      EXPECT_NEAR(1 - busy / (outcome.step_s * ranks), shape.bubble(), 1e-12);
    }
}

TEST(ScheduleErrors, NameTheRanksThatWaitForEachOther) {
  Builder first, second;
  first.run(Kind::kSend, 1, 0, 1).run(Kind::kReceive, 1, 0, 1);
  second.run(Kind::kSend, 1, 0, 0).run(Kind::kReceive, 1, 0, 0);
  const std::string error = schedule_error(job_of({first, second}, {{0, 1}}), plain(2));
  EXPECT_THAT(error, HasSubstr("2 ranks wait for each other"));
  EXPECT_THAT(error, HasSubstr("rank 0: send 'op0'; rank 1: send 'op0'"));
}

TEST(ScheduleErrors, NameOperationsThatDiffer) {
  Builder first, second;
  first.run(Kind::kAllReduce, 1);
  second.run(Kind::kAllReduce, 2);
  EXPECT_THAT(schedule_error(job_of({first, second}, {{0, 1}}), plain(2)),
              HasSubstr("rank 1 starts all_reduce 'op0' of 2000000000 bytes, rank 0 starts all_reduce 'op0' "
                        "of 1000000000"));
}

// In random programs of many groups, no rank ends before its own computing, no operation before its time
// alone, and equal input gives equal output.
TEST(RandomPrograms, TakeAtLeastTheirLongestPart) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const std::vector<std::vector<int>> members{
        {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}};
    std::vector<Builder> ranks(8);
    std::vector<std::vector<uint32_t>> open(8);
    std::vector<double> computing(8);
    for (int i = 0; i < 40; ++i) {
      const int pick = static_cast<int>(random() % 3);  // all, half or pair
      const double gb = static_cast<double>(1 + random() % 9);
      for (int r = 0; r < 8; ++r) {
        const auto own = static_cast<size_t>(r);
        const double s = static_cast<double>(random() % 5);
        computing[own] += s;
        ranks[own].compute(s);
        open[own].push_back(ranks[own].start(Kind::kAllReduce, gb, pick));
        if (open[own].size() < 3) continue;
        ranks[own].wait(open[own].front());
        open[own].erase(open[own].begin());
      }
    }
    for (size_t r = 0; r < 8; ++r)
      for (const uint32_t ticket : open[r]) ranks[r].wait(ticket);
    const RankPrograms job = job_of(ranks, members);
    const ScheduleOutcome outcome = simulate_schedule(job, plain(4, 2)),
                          again = simulate_schedule(job, plain(4, 2));
    EXPECT_EQ(outcome.step_s, again.step_s);
    const Hardware hardware = plain(4, 2);
    const Cluster cluster(hardware, 8);
    for (size_t r = 0; r < 8; ++r) {
      std::array<double, 3> alone_s{};  // of each of the rank's groups, whose operations run one by one
      for (const ProgramOp& op : ranks[r].program.ops)
        if (op.kind == ProgramOp::Kind::kStart)
          alone_s[static_cast<size_t>(op.group)] +=
              cluster
                  .cost(op.operation, op.bytes,
                        members[static_cast<size_t>(job.groups[r][static_cast<size_t>(op.group)])])
                  .alone_s(cluster);
      const RankOutcome& own = outcome.ranks[r];
      EXPECT_GE(own.end_s * (1 + 1e-12), *std::ranges::max_element(alone_s));
      EXPECT_GE(own.operated_s * (1 + 1e-12), alone_s[0] + alone_s[1] + alone_s[2]);
      EXPECT_DOUBLE_EQ(own.busy_s, computing[r]);
      EXPECT_NEAR(own.end_s, own.busy_s + own.waited_s, 1e-9);
    }
  }
}

}  // namespace
}  // namespace ingot
