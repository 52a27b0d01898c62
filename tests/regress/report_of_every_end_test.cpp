// Seen: only completed runs had a report.html. Wanted: interrupted and failed runs have one too, with how
// they ended at the top, and a report that cannot be written does not change how the run ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ReportOfEveryEnd : public ProgramInFolder {
 protected:
  std::string report() const { return read_file(path("run/report.html")); }
};

TEST_F(ReportOfEveryEnd, AnInterruptedRunWritesItsReport) {
  const pid_t pid =
      start(small_run("run", {"train.steps=1000000", "checkpoint.every=10", "checkpoint.keep=100000"}));
  ASSERT_TRUE(comes(path("run/checkpoints/step-000000010/trainer.json"))) << wait(pid).output;
  kill(pid, SIGTERM);
  const Outcome ended = wait(pid);
  ASSERT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_THAT(report(), AllOf(HasSubstr("This run was interrupted."), HasSubstr("<h2>Provenance</h2>"),
                              HasSubstr("ingot train tiny-llama"), Not(HasSubstr("gzip"))));
  EXPECT_THAT(read_file(path("run/loss.svg")), HasSubstr("<svg"));
  const auto now = nlohmann::json::parse(read_file(path("run/run.json")));
  EXPECT_EQ(now["status"], "interrupted");
  EXPECT_EQ(now["exit_code"], 75);
}

TEST_F(ReportOfEveryEnd, AFailedRunWritesItsReportWithTheErrorAtTheTop) {
  const Outcome ended =
      run(small_run("run", {"train.steps=200", "optimizer.lr=1e30", "schedule.warmup_steps=0"}));
  ASSERT_EQ(ended.exit_code, 5) << ended.output;
  const std::string html = report();
  EXPECT_THAT(html, AllOf(HasSubstr("This run failed: step "), Not(HasSubstr("gzip"))));
  EXPECT_LT(html.find("This run failed"), html.find("<h2>"));
  EXPECT_TRUE(std::filesystem::exists(path("run/loss.svg")));
}

TEST_F(ReportOfEveryEnd, AReportThatCannotBeWrittenIsAWarning) {
  ASSERT_EQ(run(small_run("run", {"train.steps=6", "train.stop_at=3"})).exit_code, 0);
  EXPECT_THAT(report(), HasSubstr("This run was stopped."));
  std::filesystem::remove(path("run/report.html"));
  make_folders(path("run/report.html/x"));  // a folder in place of the file
  const Outcome ended = run({"train", "--resume", "--out", path("run")});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("warning: there is no report of this run: "));
  EXPECT_EQ(nlohmann::json::parse(read_file(path("run/run.json")))["status"], "completed");
}

}  // namespace
}  // namespace ingot
