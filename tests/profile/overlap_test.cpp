#include "ingot/profile/overlap.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Clock = CommLog::Clock;
using std::chrono::milliseconds;

constexpr Clock::time_point kStart{std::chrono::seconds(100)};

// Returns an event that runs from begun_ms to ended_ms. The caller waits for it from wait_ms until it
// has ended.
CommLog::Event event(const std::string& name, int begun_ms, int ended_ms, int wait_ms) {
  const auto at = [](int ms) { return kStart + milliseconds(ms); };
  return {.group = "dp",
          .name = name,
          .started = at(begun_ms),
          .begun = at(begun_ms),
          .ended = at(ended_ms),
          .wait_begun = at(wait_ms),
          .wait_ended = at(std::max(wait_ms, ended_ms))};
}

TEST(Overlap, SeparatesWaitingFromCommunicationThatNothingCanHide) {
  ParallelConfig layout;
  layout.dp = 2;
  // Four buckets take 10 ms each. Two are done before the caller needs them, it waits 5 ms for the third,
  // and 10 ms for the last. A sum follows.
  const std::vector<CommLog::Event> events = {
      event("gradients 0", 0, 10, 50), event("gradients 1", 10, 20, 50), event("gradients 2", 50, 60, 55),
      event("gradients 3", 60, 70, 60), event("sum", 70, 80, 70)};
  const Overlap overlap = measure_overlap(events, layout, 1);
  EXPECT_EQ(overlap.operations, 4);
  EXPECT_NEAR(overlap.ran_s, 0.040, 1e-9);
  EXPECT_NEAR(overlap.waited_s, 0.015, 1e-9);
  EXPECT_NEAR(overlap.unhideable_s, 0.010, 1e-9);
  EXPECT_NEAR(overlap.decisions_s, 0.010, 1e-9);
  EXPECT_NEAR(overlap.hidden(), 1 - 5.0 / 30, 1e-9);
}

TEST(Overlap, NothingHiddenIsZeroAndNothingToHideIsOne) {
  ParallelConfig shards;
  shards.fsdp = 2;
  std::vector<CommLog::Event> bare;
  for (int i = 0; i < 6; ++i) bare.push_back(event("gather unit", 10 * i, 10 * i + 10, 10 * i));
  EXPECT_NEAR(measure_overlap(bare, shards, 1).hidden(), 0, 1e-9);
  bare.resize(2);
  EXPECT_EQ(measure_overlap(bare, shards, 1).hidden(), 1);
  EXPECT_EQ(measure_overlap({}, shards, 1).hidden(), 1);
}

// Replicas cannot hide the last bucket and the directions of the last round. The caller waits for nothing
// else here.
TEST(Overlap, MuonsLastRoundIsExposedOnEveryRank) {
  ParallelConfig layout;
  layout.dp = 2;
  const std::vector<CommLog::Event> events = {
      event("gradients 0", 0, 10, 0), event("muon gather 0", 20, 30, 40), event("muon gather 1", 40, 50, 40)};
  const Overlap overlap = measure_overlap(events, layout, 1);
  EXPECT_NEAR(overlap.unhideable_s, 0.020, 1e-9);
  EXPECT_EQ(overlap.hidden(), 1);
}

TEST(Overlap, TheTraceIsJson) {
  const std::string lines = chrome_trace({event("gradients 0", 0, 10, 5)}, kStart, 1);
  const auto json = nlohmann::json::parse(fmt::format("[{}]", lines.substr(0, lines.size() - 2)));
  ASSERT_EQ(json.size(), 5u);  // two tracks and the spans on them
  EXPECT_EQ(json[0]["args"]["name"], "rank");
  EXPECT_EQ(json[1]["name"], "compute");
  EXPECT_EQ(json[1]["dur"], 5000.0);
  EXPECT_EQ(json[2]["name"], "wait: gradients 0");
  EXPECT_EQ(json[2]["ts"], 5000.0);
  EXPECT_EQ(json[3]["args"]["name"], "group dp");
  EXPECT_EQ(json[4]["pid"], 1);
  EXPECT_EQ(json[4]["tid"], json[3]["tid"]);
  EXPECT_EQ(json[4]["dur"], 10000.0);
}

TEST(CommLog, RecordsTheTimeOfEveryWait) {
  CommLog log;
  const int a = 0, b = 0;  // two groups
  CommOperation operation;
  operation.kind = CommOperation::Kind::kAllGather;
  log.started(&b, 1, "tp", "other", operation);
  std::array<float, 3> numbers{};
  operation.kind = CommOperation::Kind::kSend;
  operation.in = Tensor(numbers.data(), DType::f32, {3});
  operation.peer = 2;
  log.started(&a, 1, "dp", "one", operation);
  log.begun(&a, 1);
  log.ended(&a, 1);
  log.waited(&a, 1, Clock::now());
  log.waited(&a, 7, Clock::now());  // the log knows no such operation
  const std::vector<CommLog::Event> events = log.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].group + " " + events[0].name, "dp one");
  EXPECT_EQ(events[0].kind, CommOperation::Kind::kSend);
  EXPECT_EQ(events[0].bytes, 12);
  EXPECT_EQ(events[0].peer, 2);
  EXPECT_EQ(events[0].number, 1u);
  EXPECT_EQ(log.operations(), 2u);
  EXPECT_LE(events[0].started, events[0].begun);
  EXPECT_LE(events[0].begun, events[0].ended);
  EXPECT_LE(events[0].ended, events[0].wait_ended);
  EXPECT_TRUE(log.take().empty());
}

}  // namespace
}  // namespace ingot
