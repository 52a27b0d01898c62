// Seen: after a crash run.json said "running" for ever, and it named neither the program and arguments
// that wrote it, nor the data, nor the exit code. Wanted: any later command says that the run died, and
// run.json records the origin of the run and how each of its starts and resumptions ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/run/record/heartbeat.h"
#include "ingot/run/record/process_identity.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/record/run_record.h"
#include "ingot/run/record/run_status.h"
#include "ingot/run/record/utc_time.h"
#include "tests/reference/error_of.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::MatchesRegex;

class RunRecordTest : public ProgramInFolder {
 protected:
  json record(const std::string& run) const { return json::parse(read_file(path(run) + "/run.json")); }
  // Writes a folder with the record of a running run, as this process would write it, with changes.
  void write_running(const json& changes) const {
    make_folders(path("run"));
    RunRecord(path("run"))
        .write({.status = "running", .val_loss = {}, .val_bits_per_byte = {}, .config_hash = ""});
    json now = record("run");
    now.merge_patch(changes);
    write_file(path("run/run.json"), now.dump());
  }
};

TEST_F(RunRecordTest, LaterCommandsReportThatAKilledRunDied) {
  const pid_t pid =
      start(small_run("run", {"train.steps=1000000", "checkpoint.every=10", "checkpoint.keep=100000"}));
  ASSERT_TRUE(comes(path("run/checkpoints/step-000000010/trainer.json"))) << wait(pid).output;
  EXPECT_EQ(read_run_status(path("run"))->status, "running");
  kill(pid, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(read_run_status(path("run"))->status, "died");  // its parent has not waited for it yet
  EXPECT_EQ(wait(pid).exit_code, 128 + SIGKILL);
  EXPECT_EQ(record("run")["status"], "running");  // it was killed before it could write more

  const RunStatus status = read_run_status(path("run")).value();
  EXPECT_EQ(status.status, "died");
  EXPECT_GE(status.steps, 10);
  const std::string gone = fmt::format("died at step {} \\(pid {} is gone\\)", status.steps, pid);
  const Outcome listed = run({"status", path("run")});
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_THAT(listed.output,
              ContainsRegex(fmt::format("run +died +{} .* ago +pid {} is gone", status.steps, pid)));
  EXPECT_THAT(run({"generate", path("run"), "--prompt", "l", "--tokens", "1"}).output,
              ContainsRegex("note: the run .*" + gone));
  EXPECT_THAT(run({"eval", path("run"), "--data", path("text.txt"), "--max-tokens", "64"}).output,
              ContainsRegex("note: the run .*" + gone));
  const Outcome resumed = run({"train", "--resume", "--out", path("run"), "--set",
                               fmt::format("train.stop_at={}", status.steps + 5)});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, ContainsRegex("the run " + gone));

  const json now = record("run");
  EXPECT_EQ(now["status"], "stopped");
  ASSERT_EQ(now["parts"].size(), 2u);
  EXPECT_EQ(now["parts"][0]["status"], "died");
  EXPECT_EQ(now["parts"][0]["steps"], status.steps);
  EXPECT_EQ(now["parts"][0]["pid"], pid);
  EXPECT_EQ(now["begin"], now["parts"][0]["begin"]);
  EXPECT_EQ(now["parts"][1]["status"], "stopped");
  EXPECT_EQ(now["parts"][1]["arguments"][2], "--resume");
}

TEST_F(RunRecordTest, RecordsProgramMachineTimesAndData) {
  const std::vector<std::string> arguments = small_run("run", {"train.steps=3"});
  const int64_t before_s = unix_now_s();
  const Outcome ended = run(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  const json now = record("run");
  EXPECT_THAT(now["program"]["version"].get<std::string>(), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(now["program"]["commit"].get<std::string>(), MatchesRegex("[0-9a-f]{40}|unknown"));
  std::vector<std::string> typed = now["program"]["arguments"];
  ASSERT_EQ(typed.size(), arguments.size() + 1);
  EXPECT_TRUE(std::equal(arguments.begin(), arguments.end(), typed.begin() + 1));
  EXPECT_EQ(now["status"], "completed");
  EXPECT_EQ(now["exit_code"], 0);
  EXPECT_TRUE(now["error"].is_null());
  const auto begin = parse_utc(now["begin"]), end = parse_utc(now["end"]);
  ASSERT_TRUE(begin && end);
  EXPECT_GE(*begin, before_s);
  EXPECT_GE(*end, *begin);
  EXPECT_LE(*end, unix_now_s());
  EXPECT_EQ(now["process"]["host"], this_process().host);
  EXPECT_EQ(now["process"]["boot_id"], this_process().boot_id);
  EXPECT_GE(now["threads"], 1);
  for (const char* hash : {"train_hash", "val_hash", "tokenizer_hash"})
    EXPECT_THAT(now["data"][hash].get<std::string>(), MatchesRegex("[0-9a-f]{16}")) << hash;
  EXPECT_NE(now["data"]["train_hash"], now["data"]["val_hash"]);
  EXPECT_EQ(now["parts"].size(), 1u);
  const json beat = json::parse(read_file(path("run/heartbeat.json")));
  EXPECT_TRUE(parse_utc(beat["time"]));
  EXPECT_LE(beat["step"], 3);
  EXPECT_THAT(run({"--version"}).output,
              HasSubstr(now["program"]["commit"].get<std::string>().substr(0, 12)));

  // Other data has another hash; equal data has an equal one.
  ASSERT_EQ(run(small_run("again", {"train.steps=1"})).exit_code, 0);
  write_file(path("text.txt"), read_file(path("text.txt")) + "and one line more\n");
  ASSERT_EQ(run(small_run("other", {"train.steps=1", "data.val_fraction=0.3"})).exit_code, 0);
  EXPECT_EQ(record("again")["data"], now["data"]);
  EXPECT_NE(record("other")["data"]["train_hash"], now["data"]["train_hash"]);
  EXPECT_EQ(record("other")["data"]["tokenizer_hash"], now["data"]["tokenizer_hash"]);
}

TEST_F(RunRecordTest, AFailedRunRecordsItsErrorAndItsExitCode) {
  const Outcome ended =
      run(small_run("run", {"train.steps=200", "optimizer.lr=1e30", "schedule.warmup_steps=0"}));
  ASSERT_EQ(ended.exit_code, 5) << ended.output;
  const json now = record("run");
  EXPECT_EQ(now["status"], "failed");
  EXPECT_EQ(now["exit_code"], 5);
  EXPECT_THAT(ended.output, HasSubstr(now["error"].get<std::string>()));
  EXPECT_THAT(run({"status", path("run")}).output,
              AllOf(HasSubstr("failed"), HasSubstr("exit code 5: step ")));
}

TEST_F(RunRecordTest, TheBestCheckpointIsListed) {
  const Outcome ended = run(small_run("run", {"train.steps=20", "eval.every=10", "checkpoint.best=true"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  const json best = record("run")["best"];
  EXPECT_THAT(run({"status", path("run")}).output,
              HasSubstr(fmt::format("best checkpoint: step {}, validation loss {:.4f}",
                                    best["step"].get<int64_t>(), best["val_loss"].get<double>())));
  EXPECT_EQ(json::parse(run({"status", path("run"), "--json"}).output)[0]["best"], best);
}

TEST_F(RunRecordTest, ALaterProcessWithTheSamePidIsNotMistakenForTheRun) {
  write_running(json::object());
  EXPECT_EQ(read_run_status(path("run"))->status, "running");
  write_running({{"process", {{"start_ticks", 1}}}});
  EXPECT_EQ(read_run_status(path("run"))->status, "died");
}

TEST_F(RunRecordTest, ARunOnAnotherMachineIsReportedWithItsLastHeartbeat) {
  write_running({{"process", {{"host", "node7"}, {"boot_id", "another"}}}});
  write_file(path("run/heartbeat.json"), R"({"time": "2026-01-02T03:04:05Z", "step": 17}   )"
                                         "\n");
  RunStatus status = read_run_status(path("run")).value();
  EXPECT_EQ(status.status, "running or died");
  EXPECT_EQ(status.steps, 17);
  status.last_sign_s = parse_utc("2026-01-02T03:04:05Z");
  EXPECT_EQ(describe(status, *status.last_sign_s + 3 * 3600),
            "running or died at step 17: last heartbeat 3h00m ago on node7");
  EXPECT_THAT(note_of_run(path("run/checkpoints/")), HasSubstr("running or died"));
}

// A rank that fails ends the other ranks at once, so rank 0 cannot record the reason.
TEST_F(RunRecordTest, ARunWhoseRankFailedRecordsWhichAndWhy) {
  write_running({{"process", {{"start_ticks", 1}}}});
  const std::unique_ptr<RunFolder> rank = RunFolder::of_rank(path("run"), 1);
  rank->write_summary({.status = "failed",
                       .val_loss = {},
                       .val_bits_per_byte = {},
                       .config_hash = "",
                       .exit_code = 6,
                       .error = "no space"});
  const RunStatus status = read_run_status(path("run")).value();
  EXPECT_EQ(status.status, "died");
  EXPECT_THAT(describe(status, unix_now_s()), HasSubstr("exit code 6: rank 1: no space"));
}

TEST_F(RunRecordTest, ARunBeforeThisMachineBootedDied) {
  write_running({{"process", {{"boot_id", "before"}}}, {"begin", "2001-01-01T00:00:00Z"}});
  json now = record("run");
  now["parts"][0]["begin"] = "2001-01-01T00:00:00Z";
  write_file(path("run/run.json"), now.dump());
  EXPECT_EQ(read_run_status(path("run"))->status, "died");
}

TEST_F(RunRecordTest, AHostileRecordCannotControlTheTerminal) {
  make_folders(path("run"));
  write_file(path("run/run.json"),
             R"({"status": "failed", "steps": 1, "error": "a\u001b[2Jb\n\u009bc\u00e4", "exit_code": 6})");
  EXPECT_EQ(read_run_status(path("run"))->error, "a\\x1b[2Jb \\u009bc\u00e4");
  EXPECT_EQ(run({"status", path("run")}).output.find('\x1b'), std::string::npos);
}

TEST_F(RunRecordTest, AHostileRecordIsOneClearError) {
  make_folders(path("run"));
  EXPECT_EQ(read_run_status(path("run")), std::nullopt);
  for (const char* text : {"", "[]", "{", "{\"status\": 7}", "null", "\xff"}) {
    write_file(path("run/run.json"), text);
    EXPECT_THAT(data_error([&] { read_run_status(path("run")); }), HasSubstr("run.json"));
    EXPECT_EQ(note_of_run(path("run")), "");
    const RunRecord record(path("run"));  // a damaged record does not stop a run from continuing
    EXPECT_EQ(record.death_before(), "");
  }
  for (const char* text :
       {"{\"status\": \"running\"}", "{\"status\": \"running\", \"process\": [1], \"parts\": [2]}"}) {
    write_file(path("run/run.json"), text);
    EXPECT_EQ(read_run_status(path("run"))->status, "running or died") << text;
    EXPECT_THAT(RunRecord(path("run")).death_before(), HasSubstr("the run died at step 0")) << text;
  }
}

TEST_F(RunRecordTest, AHeartbeatThatCannotBeWrittenIsIgnored) {
  ASSERT_EQ(mkfifo(path("heartbeat.json").c_str(), 0600), 0);
  Heartbeat(folder_).beat(1, TimeLimit::Phase::kStep, 5);
  std::filesystem::remove(path("heartbeat.json"));
  write_file(path("mine"), "mine");
  std::filesystem::create_symlink("mine", path("heartbeat.json"));
  Heartbeat(folder_).beat(1, TimeLimit::Phase::kStep, 5);
  EXPECT_EQ(read_file(path("mine")), "mine");
  Heartbeat(path("absent")).beat(1, TimeLimit::Phase::kStep, 5);
}

}  // namespace
}  // namespace ingot
