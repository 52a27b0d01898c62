#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ingot/plan/plan_text.h"
#include "tests/plan/jobs.h"

namespace ingot {
namespace {

using plan_test::Operation;

// Two ranks that gather for 6 s and meanwhile compute for 4 s. Rank 1, whose timeline is kept, begins 1 s
// later.
Plan traced_plan() {
  std::vector<std::shared_ptr<const RankProgram>> programs;
  for (int r = 0; r < 2; ++r) {
    plan_test::Writer writer;
    if (r == 1) writer.compute(1, "late");
    const uint32_t ticket = writer.start(Operation::kAllGather, 0, 1'200'000'000'000, "\"weights\"");
    writer.compute(4, "forward");
    writer.wait(ticket);
    programs.push_back(writer.take());
  }
  Plan plan;
  plan.programs = plan_test::world_job(programs);
  plan.schedule = simulate_schedule(plan.programs, plan_test::plain_hardware(), {.timeline_ranks = {1}});
  return plan;
}

TEST(PlanTrace, IsJsonWithATrackPerGroup) {
  const auto json = nlohmann::json::parse(plan_trace(traced_plan()));
  std::vector<std::string> names;
  double covered_us = 0;
  for (const auto& line : json) {
    EXPECT_EQ(line["pid"], 1);
    if (line["ph"] == "M") names.push_back(line["args"]["name"]);
    if (line["ph"] != "X") continue;
    names.push_back(line["name"]);
    if (line["tid"] == 0) covered_us += line["dur"].get<double>();
    if (line["name"] == "\"weights\"") {
      EXPECT_EQ(line["ts"], 1e6);
      EXPECT_EQ(line["dur"], 6e6);
    }
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("rank", "group 0", "late", "forward", "wait: \"weights\"",
                                                   "\"weights\""));
  EXPECT_NEAR(covered_us, 7e6, 1e-3);
}

}  // namespace
}  // namespace ingot
