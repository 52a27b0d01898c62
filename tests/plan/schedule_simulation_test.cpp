#include "ingot/plan/schedule_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "tests/plan/jobs.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using plan_test::Operation;
using plan_test::plain_hardware;
using plan_test::world_job;
using plan_test::Writer;
using testing::HasSubstr;

// Bytes of a message that takes this many seconds between two devices of a node of plain_hardware().
constexpr uint64_t message_bytes(uint64_t seconds) { return seconds * 100'000'000'000; }

const KindOutcome& kind_of(const ScheduleOutcome& outcome, Operation kind) {
  return outcome.kinds[static_cast<size_t>(kind)];
}

std::string internal_error(const RankPrograms& job) {
  return error_of([&] { simulate_schedule(job, plain_hardware()); }, ErrorKind::kInternal);
}

// Two ranks start an all_gather that takes 6 s (half of its output over the link), compute, and wait.
ScheduleOutcome overlapped(double compute_s) {
  Writer writer;
  const uint32_t ticket = writer.start(Operation::kAllGather, 0, message_bytes(12), "weights");
  writer.compute(compute_s);
  writer.wait(ticket);
  const auto program = writer.take();
  return simulate_schedule(world_job({program, program}), plain_hardware());
}

TEST(ScheduleSimulation, CommunicationIsHiddenAsFarAsComputationReaches) {
  const ScheduleOutcome hidden = overlapped(10), exposed = overlapped(4);
  EXPECT_DOUBLE_EQ(hidden.step_s, 10);
  EXPECT_DOUBLE_EQ(kind_of(hidden, Operation::kAllGather).exposed_s, 0);
  EXPECT_DOUBLE_EQ(kind_of(hidden, Operation::kAllGather).ran_s, 12);  // both ranks
  EXPECT_DOUBLE_EQ(exposed.step_s, 6);
  EXPECT_DOUBLE_EQ(exposed.ranks[0].busy_s, 4);
  EXPECT_DOUBLE_EQ(exposed.ranks[0].exposed_s, 2);
  EXPECT_DOUBLE_EQ(exposed.ranks[0].idle_s, 0);
  EXPECT_DOUBLE_EQ(kind_of(exposed, Operation::kAllGather).exposed_s, 4);
  EXPECT_DOUBLE_EQ(kind_of(exposed, Operation::kAllGather).ran_s, 12);
  ASSERT_EQ(exposed.ranks[1].waits.size(), 1u);
  EXPECT_EQ(exposed.ranks[1].waits[0].name, "weights");
  EXPECT_EQ(exposed.ranks[1].waits[0].waits, 1);
  EXPECT_DOUBLE_EQ(exposed.ranks[1].waits[0].exposed_s, 2);
}

TEST(ScheduleSimulation, WaitingForASlowRankIsIdleNotExposed) {
  Writer fast, slow;
  fast.compute(1);
  fast.run(Operation::kAllGather, 0, message_bytes(12), "weights");
  slow.compute(5);
  slow.run(Operation::kAllGather, 0, message_bytes(12), "weights");
  slow.compute(3);
  const ScheduleOutcome outcome = simulate_schedule(world_job({fast.take(), slow.take()}), plain_hardware());
  EXPECT_DOUBLE_EQ(outcome.step_s, 14);
  EXPECT_DOUBLE_EQ(outcome.ranks[0].idle_s, 4 + 3);  // before the operation, and at the end
  EXPECT_DOUBLE_EQ(outcome.ranks[0].exposed_s, 6);
  EXPECT_DOUBLE_EQ(outcome.ranks[0].waits[0].idle_s, 4);
  EXPECT_DOUBLE_EQ(outcome.ranks[0].done_s, 11);
  EXPECT_DOUBLE_EQ(outcome.ranks[1].idle_s, 0);
  EXPECT_DOUBLE_EQ(outcome.bubble(), 7.0 / 28);
}

TEST(ScheduleSimulation, OperationsOfAGroupRunOneAfterTheOther) {
  Writer writer;
  const uint32_t first = writer.start(Operation::kAllGather, 0, message_bytes(4), "first");
  const uint32_t second = writer.start(Operation::kReduceScatter, 0, message_bytes(2), "second");
  writer.compute(1);
  writer.wait(second);
  writer.wait(first);
  const auto program = writer.take();
  const ScheduleOutcome outcome =
      simulate_schedule(world_job({program, program}), plain_hardware(), {.timeline_ranks = {1}});
  EXPECT_DOUBLE_EQ(outcome.step_s, 3);
  // The wait for the second operation is first exposed time of the first one.
  EXPECT_DOUBLE_EQ(kind_of(outcome, Operation::kAllGather).exposed_s, 2 * 1);
  EXPECT_DOUBLE_EQ(kind_of(outcome, Operation::kReduceScatter).exposed_s, 2 * 1);
  EXPECT_DOUBLE_EQ(kind_of(outcome, Operation::kAllGather).ran_s, 2 * 2);
  ASSERT_EQ(outcome.timelines.size(), 1u);
  const std::vector<TimelineSpan>& spans = outcome.timelines[0].spans;
  ASSERT_EQ(spans.size(), 4u);  // two operations, one computation, one wait
  EXPECT_DOUBLE_EQ(spans[0].begin_s, 0);
  EXPECT_DOUBLE_EQ(spans[0].end_s, 2);
  EXPECT_EQ(spans[3].track, TimelineSpan::Track::kOperation);
  EXPECT_DOUBLE_EQ(spans[3].begin_s, 2);
  EXPECT_DOUBLE_EQ(spans[3].end_s, 3);
}

// Ranks 0, 1 are on one node and 8, 9 on another one. Two groups gather between the nodes at the same time.
double two_groups_s(int nics) {
  Hardware hardware = plain_hardware();
  hardware.network.nics = nics;
  Writer writer;
  writer.run(Operation::kAllGather, 0, 20'000'000'000, "weights");  // 1 s through one NIC
  const auto program = writer.take();
  const auto idle = Writer().take();
  RankPrograms job;
  job.members = {{0, 8}, {1, 9}};
  for (int r = 0; r < 16; ++r) {
    const bool is_member = r % 8 < 2;
    job.programs.push_back(is_member ? program : idle);
    job.groups.push_back(is_member ? std::vector<int>{r % 8} : std::vector<int>{});
  }
  return simulate_schedule(job, hardware).step_s;
}

TEST(ScheduleSimulation, GroupsThatShareANicTakeTwiceAsLong) {
  EXPECT_DOUBLE_EQ(two_groups_s(1), 2);
  EXPECT_DOUBLE_EQ(two_groups_s(8), 1);
}

TEST(ScheduleSimulation, AnOperationSpeedsUpWhenAnotherOneEnds) {
  Hardware hardware = plain_hardware();
  hardware.network.nics = 1;
  std::vector<std::shared_ptr<const RankProgram>> programs(16, Writer().take());
  Writer to, from, late_to, late_from;
  to.run(Operation::kReceive, 0, 40'000'000'000, "long", 0);
  from.run(Operation::kSend, 0, 40'000'000'000, "long", 8);
  late_to.run(Operation::kReceive, 0, 10'000'000'000, "short", 1);
  late_from.compute(2);
  late_from.run(Operation::kSend, 0, 10'000'000'000, "short", 9);
  programs[0] = from.take();
  programs[8] = to.take();
  programs[1] = late_from.take();
  programs[9] = late_to.take();
  const ScheduleOutcome outcome = simulate_schedule(world_job(programs), hardware);
  // The long message takes 2 s at 10 GB/s, 2 s at 5 GB/s while the short one shares the NIC, and 1 s for the
  // last 10 GB.
  EXPECT_DOUBLE_EQ(outcome.ranks[9].done_s, 4);
  EXPECT_DOUBLE_EQ(outcome.ranks[8].done_s, 5);
}

TEST(ScheduleSimulation, AGroupOfOneRankCommunicatesInNoTime) {
  Writer writer;
  writer.compute(2);
  writer.run(Operation::kAllReduce, 0, 1 << 30, "alone");
  const ScheduleOutcome outcome = simulate_schedule(world_job({writer.take()}), find_hardware("h100-sxm"));
  EXPECT_EQ(outcome.step_s, 2);
  EXPECT_EQ(kind_of(outcome, Operation::kAllReduce).exposed_s, 0);
}

TEST(ScheduleSimulation, ADeadlockNamesEveryWaitingRank) {
  Writer first, second;
  first.run(Operation::kReceive, 0, 8, "left", 1);
  first.run(Operation::kSend, 0, 8, "right", 1);
  second.run(Operation::kReceive, 0, 8, "right", 0);
  second.run(Operation::kSend, 0, 8, "left", 0);
  const std::string error = internal_error(world_job({first.take(), second.take()}));
  EXPECT_THAT(error,
              HasSubstr("ranks wait for each other; rank 0: receive 'left', which rank 1 has not started; "
                        "rank 1: receive 'right', which rank 0 has not started"));
  Writer all, none;
  all.run(Operation::kAllReduce, 0, 8, "norm");
  EXPECT_THAT(internal_error(world_job({all.take(), none.take()})),
              HasSubstr("rank 0: all_reduce 'norm', which rank 1 has not started"));
  all.start(Operation::kAllReduce, 0, 8, "norm");
  EXPECT_THAT(internal_error(world_job({all.take(), none.take()})),
              HasSubstr("all_reduce 'norm' of rank 0 never begins, which rank 1 has not started"));
}

TEST(ScheduleSimulation, DifferentOperationsOfAGroupAreNamed) {
  const auto error = [](Operation kind, uint64_t bytes, int peer) {
    Writer one, other;
    one.run(Operation::kBroadcast, 0, 8, "text");
    other.run(kind, 0, bytes, "other", peer);
    return internal_error(world_job({one.take(), other.take()}));
  };
  EXPECT_EQ(error(Operation::kBroadcast, 8, 0), "no error");
  EXPECT_THAT(error(Operation::kAllReduce, 8, 0),
              HasSubstr("rank 0 starts broadcast 'text' of 8 bytes, rank 1 starts "
                        "all_reduce 'other' of 8 bytes"));
  EXPECT_THAT(error(Operation::kBroadcast, 9, 0), HasSubstr("of 9 bytes"));
  EXPECT_THAT(error(Operation::kBroadcast, 8, 1), HasSubstr("(roots 0 and 1)"));
}

TEST(ScheduleSimulation, InvalidProgramsAreRefused) {
  const auto error = [](const ProgramOp& op) {
    return internal_error(world_job({std::make_shared<const RankProgram>(RankProgram{{"x"}, {op}})}));
  };
  EXPECT_EQ(error({.seconds = 1}), "no error");
  EXPECT_THAT(error({.name = 1}), HasSubstr("rank 0: name 1 of 1"));
  EXPECT_THAT(error({.seconds = -1}), HasSubstr("'x' takes -1 s"));
  EXPECT_THAT(error({.kind = ProgramOp::Kind::kWait}), HasSubstr("waits for ticket 0 before its start"));
  EXPECT_THAT(error({.kind = ProgramOp::Kind::kStart, .group = 1}), HasSubstr("uses group 1 and has 1"));
  EXPECT_THAT(error({.kind = ProgramOp::Kind::kStart, .ticket = 9}), HasSubstr("ticket 9 in a program of 1"));
  EXPECT_THAT(error({.kind = ProgramOp::Kind::kStart, .operation = Operation::kSend, .peer = 1}),
              HasSubstr("names rank 1 of a group of 1"));
  EXPECT_THAT(error({.kind = ProgramOp::Kind::kStart, .operation = Operation::kSend}),
              HasSubstr("rank 0 sends itself a message"));
}

}  // namespace
}  // namespace ingot
