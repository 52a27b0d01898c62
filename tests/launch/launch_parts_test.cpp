// Tests of the supervisor's parts: what it reads from a job's words, the log of incidents, hosts and layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/process/descendants.h"
#include "ingot/launch/elastic.h"
#include "ingot/launch/incident.h"
#include "ingot/launch/incident_report.h"
#include "ingot/launch/job_errors.h"
#include "ingot/launch/local_job.h"
#include "ingot/run/record/heartbeat.h"
#include "tests/config/built_config.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class LaunchPartsTest : public FolderTest {};

TEST(JobWords, MpirunNamesTheRankHostAndSignal) {
  const auto cause = cause_in(
      "ingot: rank 0 of 4: told to end, and waits for other ranks: world: done with barrier 'split' (number "
      "9); "
      "world: in all_reduce 'max' (number 4885) for 0.9 s; pp: nothing yet\n"
      "mpirun noticed that process rank 3 with PID 0 on node n7 exited on signal 9 (Killed).\n");
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->kind, IncidentKind::kKilled);
  EXPECT_EQ(cause->rank, 3);
  EXPECT_EQ(cause->host, "n7");
  EXPECT_EQ(cause->reason, "signal 9 (SIGKILL)");
  EXPECT_EQ(cause->operation, "world: in all_reduce 'max' (number 4885) for 0.9 s");
}

TEST(JobWords, OpenMpi5BreaksItsSentence) {
  const auto cause = cause_in(
      "----------\nprterun noticed that process rank 1 with PID 17 on node vm exited on\nsignal 9 "
      "(Killed).\n----------\n");
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 1);
  EXPECT_EQ(cause->host, "vm");
  EXPECT_EQ(cause->reason, "signal 9 (SIGKILL)");
}

TEST(JobWords, AFaultOfTheProgramIsACrash) {
  EXPECT_EQ(
      cause_in("mpirun noticed that process rank 0 with PID 4 on node a exited on signal 11 (x).")->kind,
      IncidentKind::kCrashed);
  const auto slurm = cause_in("srun: error: node3: task 12: Segmentation fault\n");
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->rank, 12);
  EXPECT_EQ(slurm->kind, IncidentKind::kCrashed);
}

TEST(JobWords, AWatchdogNamesTheRankThatDoesNotAnswer) {
  const auto cause = cause_in(
      "ingot: rank 1 of 3: an operation is late (more than 5 s, by parallel.timeout = \"auto\"); every "
      "rank's last "
      "ones:\n  rank 0: world: in all_reduce 'max' (number 4) for 6 s\n"
      "  rank 1: dp: in all_reduce 'gradients 0' (number 7) for 5 s; world: nothing yet\n  rank 2: does not "
      "answer\n");
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->kind, IncidentKind::kHang);
  EXPECT_EQ(cause->rank, 2);
  EXPECT_EQ(cause->operation, "dp: in all_reduce 'gradients 0' (number 7) for 5 s");
  EXPECT_EQ(cause->reason, "an operation is late (more than 5 s, by parallel.timeout = \"auto\")");
}

TEST(JobWords, AnErrorIsThatOfTheFirstRankThatSpeaks) {
  const auto cause =
      cause_in("ingot: rank 2 of 4: after step 7: the loss is nan\ningot: rank 0 of 4: later\n");
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->kind, IncidentKind::kError);
  EXPECT_EQ(cause->rank, 2);
  EXPECT_EQ(cause->reason, "after step 7: the loss is nan");
  EXPECT_FALSE(cause_in("nothing of note\n  rank 1: text\ningot: rank x of 2: y\n"));
}

TEST_F(LaunchPartsTest, IncidentsAreReadBackAsTheyWereWritten) {
  IncidentLog log(folder_);
  Incident first = {.kind = IncidentKind::kHang,
                    .time_s = 1'790'000'000,
                    .rank = 3,
                    .host = "node7",
                    .operation = "world: in all_reduce 'max'",
                    .reason = "late",
                    .exit_code = 9,
                    .step = 120};
  log.add(first);
  log.add({.kind = IncidentKind::kStart});
  Incident last = log.incidents().back();
  last.steps_lost = 12;
  last.recovery_s = 4.5;
  last.ranks = 2;
  last.end = "no more";
  log.change_last(last);
  const std::vector<Incident> read = IncidentLog(folder_).incidents();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(describe(read[0]),
            "rank 3 on node7 hung at step 120: late (other ranks waited for world: in all_reduce 'max')");
  EXPECT_EQ(read[0].time_s, first.time_s);
  EXPECT_EQ(read[0].exit_code, 9);
  EXPECT_FALSE(read[0].steps_lost);
  EXPECT_EQ(describe(read[1]), "the job did not start");
  EXPECT_EQ(read[1].steps_lost, 12);
  EXPECT_EQ(read[1].recovery_s, 4.5);
  EXPECT_EQ(read[1].ranks, 2);
  EXPECT_EQ(read[1].end, "no more");
}

TEST_F(LaunchPartsTest, LinesThatAreNoIncidentAreLeftOut) {
  IncidentLog(folder_).add({.reason = "one"});
  const std::string good = read_file(folder_ / "incidents.jsonl");
  write_file(folder_ / "incidents.jsonl", "{}\n[1]\n\n" + std::string(100'000, '[') + "\n{\"time\": 3}\n" +
                                              good + good.substr(0, good.size() / 2));
  const auto incidents = read_incidents(folder_);
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0].reason, "one");
}

TEST_F(LaunchPartsTest, AHeartbeatSaysWhatItsProcessDoes) {
  Heartbeat heart(folder_);
  heart.beat(0, TimeLimit::Phase::kStart, 600);
  auto sign = read_heartbeat(folder_);
  ASSERT_TRUE(sign);
  EXPECT_EQ(sign->phase, "start");
  EXPECT_EQ(sign->first_step, -1);
  EXPECT_EQ(sign->limit_s, 600);
  EXPECT_EQ(sign->process.pid, getpid());
  heart.beat(40, TimeLimit::Phase::kStep, 5);
  sign = read_heartbeat(folder_);
  ASSERT_TRUE(sign);
  EXPECT_EQ(sign->phase, "step");
  EXPECT_EQ(sign->step, 40);
  EXPECT_EQ(sign->first_step, 40);
  EXPECT_EQ(sign->count, 2);
  heart.beat(41, TimeLimit::Phase::kStep, 5);  // too soon after the last one
  EXPECT_EQ(read_heartbeat(folder_)->count, 2);
  usleep(60'000);
  heart.beat(42, TimeLimit::Phase::kStep, 5);
  EXPECT_EQ(read_heartbeat(folder_)->step, 42);
  EXPECT_EQ(read_heartbeat(folder_)->first_step, 40);
}

TEST(IncidentReport, SumsWhatIncidentsCostAndNamesWhatTheyShare) {
  EXPECT_EQ(incident_summary({}), "");
  std::vector<Incident> incidents(4);
  for (size_t i = 0; i < incidents.size(); ++i) {
    incidents[i].kind = i == 3 ? IncidentKind::kHang : IncidentKind::kKilled;
    incidents[i].rank = i == 3 ? 0 : 2;
    incidents[i].host = i == 3 ? "a" : "b";
    incidents[i].ranks = 4;
    incidents[i].step = 10;
    incidents[i].steps_lost = i == 0 ? 2000 : 1;
    incidents[i].recovery_s = 1.5;
  }
  EXPECT_EQ(
      incident_summary(incidents),
      "4 incidents (1 hang, 3 killed): 2003 steps made again, 6.0s without a step; the last: rank 0 on a "
      "hung at step 10");
  EXPECT_THAT(incident_advice(incidents), testing::ElementsAre(HasSubstr("3 of 4 incidents are on b"),
                                                               HasSubstr("3 of 4 incidents are of rank 2"),
                                                               HasSubstr("cost 2000 steps")));
  EXPECT_THAT(incident_advice({incidents[3]}), testing::IsEmpty());
}

TEST(Hosts, AreReadWithTheirSlots) {
  const auto hosts = parse_hosts("a:8,b,c:2");
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[0].slots, 8);
  EXPECT_EQ(hosts[1].slots, 1);
  EXPECT_EQ(hosts[2].slots, 2);
  for (const char* bad : {"", "a,", ":3", "a:x", "a:0", "a:3x", "a:-1"})
    EXPECT_THAT([&] { parse_hosts(bad); }, ThrowsMessage<Error>(HasSubstr("--hosts"))) << bad;
}

RunConfig with(int dp, int fsdp, int batch, int accum) {
  RunConfig config = built_config("tiny-llama", {});
  config.parallel.dp = dp;
  config.parallel.fsdp = fsdp;
  config.train.batch_size = batch;
  config.train.grad_accum = accum;
  return config;
}

TEST(Elastic, KeepsAsManyRanksAsTheStepDividesInto) {
  const auto ranks = [](const RunConfig& config, int left) {
    const auto layout = layout_for(config, left);
    return layout ? layout->to_string() : "none";
  };
  EXPECT_EQ(ranks(with(4, 1, 12, 1), 4), "dp=4");
  EXPECT_EQ(ranks(with(4, 1, 12, 1), 3), "dp=3");
  EXPECT_EQ(ranks(with(4, 1, 8, 1), 3), "dp=2");
  EXPECT_EQ(ranks(with(2, 2, 8, 1), 3), "fsdp=2");
  EXPECT_EQ(ranks(with(1, 4, 8, 1), 3), "fsdp=2");
  EXPECT_EQ(ranks(with(2, 1, 8, 1), 0), "none");
}

TEST(Descendants, OrphansAreKilledToo) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    adopt_orphans();
    if (fork() == 0) {
      if (fork() == 0)
        while (true) pause();  // holds the pipe open until it is killed
      _exit(0);
    }
    usleep(50'000);
    _exit(end_descendants(5) == 1 ? 0 : 1);
  }
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);  // every process has closed it
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(supervisor, &status, 0), supervisor);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ingot
