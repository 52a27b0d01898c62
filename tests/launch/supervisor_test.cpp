// Tests of the supervisor with a job that is played from a script, in its own time.
#include "ingot/launch/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "ingot/core/file.h"
#include "ingot/run/run.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNever = std::numeric_limits<double>::infinity();

// One attempt: when its ranks give signs, and how it ends. Times count from its start.
struct Scene {
  double first_sign_s = 0.5;
  int64_t first_step = 0;
  double steps_per_s = 10;
  double silent_s = kNever;   // rank 0 gives no sign from then on
  double gone_s = kNever;     // rank 1's process is gone from then on
  double stopped_s = kNever;  // rank 1's process is stopped from then on
  bool is_mute = false;       // rank 1 never gives a sign
  int64_t last_steps = 0;     // finished between the last look at the signs and the end
  double ends_s = kNever;
  JobEnd end = {.status = JobEnd::Status::kCompleted};
  int64_t saved_step = 0;
};

JobEnd failed(IncidentKind kind, const std::string& reason, int exit_code = 1) {
  JobEnd end;
  end.cause.kind = kind;
  end.cause.reason = reason;
  end.cause.exit_code = exit_code;
  return end;
}

class ScriptedJob : public Job {
 public:
  explicit ScriptedJob(std::vector<Scene> scenes, int ranks = 2)
      : scenes_(std::move(scenes)), ranks_(ranks) {}

  void start() override {
    ASSERT_LT(static_cast<size_t>(starts), scenes_.size()) << "one start too many";
    start_s_ = time_s_;
    has_ended_ = false;
    pauses.push_back(time_s_ - last_end_s_);
    ++starts;
  }
  std::optional<JobEnd> end() override {
    if (heard_s >= 0 && scene_s() < scene().first_sign_s && is_ended_by_requests)
      return failed(IncidentKind::kKilled, "signal 10 (SIGUSR1)", 138);
    if (heard_s >= 0 && time_s_ > heard_s + 1) return JobEnd{.status = JobEnd::Status::kInterrupted};
    if (scene_s() < scene().ends_s) return std::nullopt;
    last_end_s_ = time_s_;
    has_ended_ = true;
    return scene().end;
  }
  std::vector<RankSign> signs() override {
    std::vector<RankSign> signs;
    if (scene_s() < scene().first_sign_s) return signs;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == 1 && scene().is_mute) continue;
      const double lead_s = rank == 0 ? std::min(scene_s(), scene().silent_s) : scene_s();
      const auto made = static_cast<int64_t>((lead_s - scene().first_sign_s) * scene().steps_per_s);
      signs.push_back({.rank = rank,
                       .host = "node" + std::to_string(rank),
                       .phase = "step",
                       .count = made + 1,
                       .step = scene().first_step + made + (has_ended_ ? scene().last_steps : 0),
                       .first_step = scene().first_step,
                       .limit_s = 5,
                       .is_gone = rank == 1 && scene_s() >= scene().gone_s,
                       .is_stopped = rank == 1 && scene_s() >= scene().stopped_s});
    }
    return signs;
  }
  void ask_to_end() override {
    if (asked_s < 0) asked_s = time_s_;
    if (heard_s < 0 && scene_s() >= deaf_s) heard_s = time_s_;
  }
  bool has_folder() override { return time_s_ < folder_gone_s; }
  void kill() override {
    ++kills;
    killed_s = scene_s();
    last_end_s_ = time_s_;
  }
  int ranks() override { return ranks_; }
  int64_t saved_step() override { return starts == 0 ? -1 : scene().saved_step; }
  double now_s() override { return time_s_; }
  void pause(double seconds) override {
    time_s_ += std::max(seconds, jump_s);
    jump_s = 0;
  }
  int signals() override {
    return static_cast<int>(std::ranges::count_if(signals_s, [&](double s) { return s <= time_s_; }));
  }

  std::vector<double> signals_s;  // when the user tells the supervisor to end
  double jump_s = 0;              // the next pause takes at least so long
  int starts = 0, kills = 0;
  double asked_s = -1, heard_s = -1, killed_s = -1;
  double deaf_s = 0;                  // requests so soon after a start are lost
  bool is_ended_by_requests = false;  // before its first sign
  double folder_gone_s = kNever;
  std::vector<double> pauses;  // before each start

 private:
  const Scene& scene() const { return scenes_[static_cast<size_t>(starts - 1)]; }
  double scene_s() const { return time_s_ - start_s_; }

  std::vector<Scene> scenes_;
  int ranks_;
  bool has_ended_ = false;
  double time_s_ = 100, start_s_ = 0, last_end_s_ = 100;
};

class SupervisorTest : public FolderTest {
 protected:
  int run(ScriptedJob& job, std::optional<int> restarts = {}) {
    IncidentLog log(run_);
    Supervisor supervisor(job, log, restarts, [&](const std::string& line) { said_ += line + "\n"; });
    return supervisor.run();
  }
  std::vector<Incident> incidents() const { return read_incidents(run_); }

  const std::filesystem::path run_ = folder_ / "run";
  std::string said_;
};

Scene killed_after(double seconds, int64_t first_step, int64_t saved_step) {
  return {.first_step = first_step,
          .ends_s = seconds,
          .end = failed(IncidentKind::kKilled, "signal 9 (SIGKILL)", 137),
          .saved_step = saved_step};
}

TEST_F(SupervisorTest, ACompleteRunIsNotStartedAgain) {
  ScriptedJob job({Scene{.ends_s = 3}});
  EXPECT_EQ(run(job), 0);
  EXPECT_EQ(job.starts, 1);
  EXPECT_THAT(incidents(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(run_));
}

TEST_F(SupervisorTest, AKilledJobGoesOnAndTheIncidentSaysWhatItCost) {
  ScriptedJob job({killed_after(4.51, 0, 20), {.first_step = 20, .ends_s = 3}});
  EXPECT_EQ(run(job), 0);
  EXPECT_EQ(job.starts, 2);
  ASSERT_EQ(incidents().size(), 1u);
  const Incident incident = incidents().front();
  EXPECT_EQ(incident.kind, IncidentKind::kKilled);
  EXPECT_EQ(incident.reason, "signal 9 (SIGKILL)");
  EXPECT_EQ(incident.exit_code, 137);
  EXPECT_EQ(incident.step, 40);
  EXPECT_EQ(incident.steps_lost, 20);
  // Half a second to the first sign and a tenth to the end of a step.
  EXPECT_NEAR(incident.recovery_s.value_or(-1), 0.6, 0.11);
  EXPECT_EQ(incident.ranks, 2);
  EXPECT_EQ(incident.end, "");
}

TEST_F(SupervisorTest, AHangIsKilledWithinItsLimitAndNamesTheStoppedRank) {
  ScriptedJob job({{.silent_s = 2, .stopped_s = 2, .saved_step = 10}, {.first_step = 10, .ends_s = 1}});
  EXPECT_EQ(run(job), 0);
  EXPECT_EQ(job.kills, 1);
  EXPECT_NEAR(job.killed_s, 2 + 5 + 5, 0.2);  // the limit, and the time for ranks to name it themselves
  ASSERT_EQ(incidents().size(), 1u);
  EXPECT_EQ(incidents()[0].kind, IncidentKind::kHang);
  EXPECT_EQ(incidents()[0].rank, 1);
  EXPECT_EQ(incidents()[0].host, "node1");
  EXPECT_THAT(incidents()[0].reason, HasSubstr("stopped"));
}

TEST_F(SupervisorTest, AStepThatWasMadeJustBeforeTheEndCounts) {
  const JobEnd error = failed(IncidentKind::kError, "step 12: the loss is not finite", 5);
  const Scene scene{.first_sign_s = 0, .steps_per_s = 0, .last_steps = 11, .ends_s = 1, .end = error};
  ScriptedJob job({scene, scene});
  EXPECT_EQ(run(job), 5);
  ASSERT_EQ(incidents().size(), 2u);
  for (const Incident& incident : incidents()) EXPECT_EQ(incident.step, 11);
}

// Found by a seed of tests/simulated_ranks: a rank that was stopped before its first sign was not the
// culprit.
TEST_F(SupervisorTest, AHangNamesTheRankThatNeverGaveASign) {
  ScriptedJob job({{.silent_s = 2, .is_mute = true, .saved_step = 10}, {.first_step = 10, .ends_s = 1}});
  EXPECT_EQ(run(job), 0);
  ASSERT_EQ(incidents().size(), 1u);
  EXPECT_EQ(incidents()[0].kind, IncidentKind::kHang);
  EXPECT_EQ(incidents()[0].rank, 1);
  EXPECT_THAT(incidents()[0].reason, HasSubstr("has given no sign of life"));
}

TEST_F(SupervisorTest, OneRankAloneIsKilledAtItsLimit) {
  ScriptedJob job({{.silent_s = 2, .saved_step = 10}, {.first_step = 10, .ends_s = 1}}, 1);
  EXPECT_EQ(run(job), 0);
  EXPECT_NEAR(job.killed_s, 2 + 5, 0.2);
}

TEST_F(SupervisorTest, AJobThatGoesOnWithoutOneOfItsRanksIsKilled) {
  ScriptedJob job({{.gone_s = 2, .saved_step = 10}, {.first_step = 10, .ends_s = 1}});
  EXPECT_EQ(run(job), 0);
  EXPECT_NEAR(job.killed_s, 2 + 3, 0.2);
  EXPECT_EQ(incidents()[0].rank, 1);
  EXPECT_EQ(incidents()[0].kind, IncidentKind::kKilled);
}

// A laptop that sleeps, or a supervisor that is stopped together with its job, is no hang.
TEST_F(SupervisorTest, ASleepOfTheSupervisorIsNoHang) {
  ScriptedJob job({{.silent_s = 2, .ends_s = 63}}, 1);
  job.jump_s = 60;
  EXPECT_EQ(run(job), 0);
  EXPECT_EQ(job.kills, 0);
}

TEST_F(SupervisorTest, ASignalIsPassedOnAndASavedRunEndsWith75) {
  ScriptedJob job({Scene{}});
  job.signals_s = {103};
  EXPECT_EQ(run(job), kExitInterrupted);
  EXPECT_NEAR(job.asked_s, 103, 0.1);
  EXPECT_EQ(job.kills, 0);
  EXPECT_THAT(incidents(), IsEmpty());
}

TEST_F(SupervisorTest, ARequestThatIsLostAtTheStartIsMadeAgain) {
  ScriptedJob job({killed_after(2, 0, 10), Scene{.first_sign_s = 3}});
  job.deaf_s = 3.5;
  job.signals_s = {103.1};
  EXPECT_EQ(run(job), kExitInterrupted);
  EXPECT_NEAR(job.asked_s, 103.1, 0.1);
  EXPECT_LT(job.heard_s, 108);
  EXPECT_EQ(job.kills, 0);
}

TEST_F(SupervisorTest, AJobIsAskedAtItsFirstSign) {
  ScriptedJob job({Scene{.first_sign_s = 0.5}});
  job.deaf_s = 0.5;
  job.signals_s = {100.2};
  EXPECT_EQ(run(job), kExitInterrupted);
  EXPECT_NEAR(job.heard_s, 100.5, 0.1);
}

TEST_F(SupervisorTest, ARequestThatEndsAJobBeforeItsFirstSignIsNoFailure) {
  for (const bool is_restart : {false, true}) {
    ScriptedJob job(is_restart ? std::vector<Scene>{killed_after(2, 0, 10), Scene{.saved_step = 10}}
                               : std::vector<Scene>{Scene{.saved_step = -1}});
    job.is_ended_by_requests = true;
    job.signals_s = {is_restart ? 102.2 : 100.1};
    EXPECT_EQ(run(job), kExitInterrupted);
    EXPECT_EQ(job.starts, is_restart ? 2 : 1);
    EXPECT_THAT(said_, HasSubstr(is_restart ? "nothing to save after the checkpoint of step 10"
                                            : "nothing to save: the run"));
  }
}

TEST_F(SupervisorTest, NoJobIsStartedThatWasAskedToEnd) {
  ScriptedJob job({Scene{}});
  job.signals_s = {100};
  EXPECT_EQ(run(job), kExitInterrupted);
  EXPECT_EQ(job.starts, 0);
}

TEST_F(SupervisorTest, AFolderThatIsGoneIsNamedAndNotMadeAgain) {
  ScriptedJob job({Scene{.silent_s = 2, .saved_step = 10}, Scene{}});
  job.folder_gone_s = 102;
  EXPECT_EQ(run(job), exit_code(ErrorKind::kDisk));
  EXPECT_EQ(job.starts, 1);
  EXPECT_THAT(said_, HasSubstr("the run's folder was removed or renamed"));
  EXPECT_THAT(said_, testing::Not(HasSubstr("no sign of life")));
  EXPECT_FALSE(std::filesystem::exists(run_));
}

TEST_F(SupervisorTest, ASecondSignalKillsTheJob) {
  ScriptedJob job({Scene{}});
  job.signals_s = {103, 103.5};
  EXPECT_EQ(run(job), 1);
  EXPECT_EQ(job.kills, 1);
  EXPECT_EQ(job.starts, 1);
}

TEST_F(SupervisorTest, ASignalBetweenTwoAttemptsEndsTheRun) {
  ScriptedJob job({killed_after(2, 0, 10), killed_after(3, 10, 10), {}});
  job.signals_s = {105.5};
  EXPECT_EQ(run(job), kExitInterrupted);
  EXPECT_EQ(job.starts, 2);
}

TEST_F(SupervisorTest, TheSameErrorAtTheSameStepEndsTheRunAndNamesIt) {
  const Scene scene{.first_step = 10,
                    .ends_s = 2.51,
                    .end = failed(IncidentKind::kError, "step 31: the loss is nan", 5),
                    .saved_step = 10};
  ScriptedJob job({scene, scene, scene});
  EXPECT_EQ(run(job), 5);
  EXPECT_EQ(job.starts, 2);
  EXPECT_THAT(incidents().back().end,
              HasSubstr("the same step failed twice for the same reason (after step 30)"));
  EXPECT_THAT(said_, HasSubstr("step 31: the loss is nan"));
}

TEST_F(SupervisorTest, TheSameErrorAtAnotherStepIsTriedAgain) {
  Scene first{.ends_s = 2.51, .end = failed(IncidentKind::kError, "the disk is full", 6), .saved_step = 10};
  Scene second = first;
  second.first_step = 10;
  ScriptedJob job({first, second, {.first_step = 10, .ends_s = 2}});
  EXPECT_EQ(run(job), 0);
}

TEST_F(SupervisorTest, ThreeAttemptsWithoutANewStepEndTheRun) {
  ScriptedJob job({killed_after(4.5, 0, 20),
                   killed_after(0.55, 20, 20),
                   killed_after(2, 20, 20),
                   killed_after(0.55, 20, 20),
                   {}});
  EXPECT_EQ(run(job), 137);
  EXPECT_EQ(job.starts, 4);
  EXPECT_THAT(incidents().back().end, HasSubstr("no progress beyond step 40"));
}

TEST_F(SupervisorTest, AttemptsThatNeverSaveEndTheRun) {
  std::vector<Scene> scenes;
  for (int i = 0; i < 20; ++i) scenes.push_back(killed_after(2 + i, 0, 0));  // always a little further
  ScriptedJob job(scenes);
  EXPECT_EQ(run(job), 137);
  EXPECT_THAT(incidents().back().end, HasSubstr("before they saved a checkpoint after step 0"));
}

TEST_F(SupervisorTest, PausesGrowUntilACheckpointIsSaved) {
  ScriptedJob job({killed_after(2, 0, 0),
                   killed_after(3, 0, 0),
                   killed_after(4, 0, 0),
                   killed_after(5, 0, 30),
                   {.first_step = 30, .ends_s = 1}});
  EXPECT_EQ(run(job), 0);
  EXPECT_THAT(job.pauses, ElementsAre(0, testing::DoubleNear(0, 0.1), testing::DoubleNear(1, 0.1),
                                      testing::DoubleNear(2, 0.1), testing::DoubleNear(0, 0.1)));
}

TEST_F(SupervisorTest, NoMoreRestartsThanTheUserAllows) {
  ScriptedJob job({killed_after(2, 0, 10), killed_after(2, 10, 20), {}});
  EXPECT_EQ(run(job, 1), 137);
  EXPECT_EQ(job.starts, 2);
  EXPECT_THAT(incidents().back().end, HasSubstr("--restarts allows 1"));
  ScriptedJob none({killed_after(2, 0, 10)});
  EXPECT_EQ(run(none, 0), 137);
}

// The command's own message says what is wrong, and no folder is made for it.
TEST_F(SupervisorTest, AnErrorOfTheFirstStartLeavesNothing) {
  ScriptedJob job({{.first_sign_s = kNever, .ends_s = 0.2, .end = failed(IncidentKind::kError, "", 2)}});
  EXPECT_EQ(run(job), 2);
  EXPECT_FALSE(std::filesystem::exists(run_));
  EXPECT_EQ(said_, "");
}

TEST_F(SupervisorTest, AUsageErrorOfALaterStartIsNotTriedAgain) {
  ScriptedJob job(
      {killed_after(2, 0, 10),
       {.first_sign_s = kNever, .ends_s = 0.2, .end = failed(IncidentKind::kError, "other data", 2)}});
  EXPECT_EQ(run(job), 2);
  EXPECT_THAT(incidents().back().end, HasSubstr("another start would end in the same way"));
}

TEST_F(SupervisorTest, AnIncidentThatCannotBeWrittenDoesNotEndTheRun) {
  write_file(run_, "a file where the folder should be");
  ScriptedJob job({killed_after(2, 0, 10), {.first_step = 10, .ends_s = 2}});
  EXPECT_EQ(run(job), 0);
  EXPECT_THAT(said_, HasSubstr("cannot"));
}

}  // namespace
}  // namespace ingot
