// Tests of the program as a user sees it: exit codes, messages and help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"
#include "tests/regress/run_script.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Runs `ingot ARGUMENTS` in a shell.
Outcome ingot(const std::string& arguments) { return run_command(INGOT_PROGRAM " " + arguments); }

class ProgramTest : public FolderTest {};

TEST_F(ProgramTest, DoctorDescribesTheMachine) {
  const Outcome outcome = ingot("doctor");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* row :
       {"processor", "cores", "instructions", "memory", "disk", "products f32", "products bf16"})
    EXPECT_THAT(outcome.output, HasSubstr(row));
}

TEST_F(ProgramTest, EveryCommandHasHelp) {
  const Outcome top = ingot("--help");
  EXPECT_EQ(top.exit_code, 0);
  for (const char* command : {"train", "eval", "generate", "tokenizer", "data", "bench", "schedule", "plan",
                              "sweep", "lr-range", "compare", "status", "doctor"}) {
    EXPECT_THAT(top.output, HasSubstr(command));
    EXPECT_EQ(ingot(std::string(command) + " --help").exit_code, 0) << command;
  }
  EXPECT_THAT(ingot("train --help").output,
              AllOf(HasSubstr("shakespeare-char-cpu"), HasSubstr("optimizer.weight_decay")));
  EXPECT_EQ(ingot("--version").exit_code, 0);
}

TEST_F(ProgramTest, UsageErrorsExitWith2AndNameTheMistake) {
  const std::string cases[][2] = {
      {"", "command must follow"},
      {"trane", "trane"},
      {"train --dta x", "dta"},
      {"train tiny-lama", "did you mean tiny-llama?"},
      {"train tiny-llama", "no text to train on"},
      {"train no/such.toml", "no/such.toml"},
      {"train tiny-llama --set train.step=1", "--set: train.step: unknown key; did you mean train.steps?"},
      {"train tiny-llama --set train.steps=many", "whole number"},
      {"train tiny-llama --set precision.compute=fp8", "one of f32, bf16"},
      {"train tiny-llama --set activations.policy=auto", "needs activations.budget"},
      {"bench checkpointing tiny-llama --steps 0", "--steps"},
      {"bench step tiny-llama --set parallel.dp=2", "times the steps of one rank here"},
      {"bench checkpointing tiny-llama --set parallel.tp=2", "parallel: tp=2 is 2 ranks; leave parallel out"},
      {"train --resume", "--out"},
      {"train --resume --out " + path("none"), path("none")},
      {"generate x --prompt a --top-p 2", "top"},
      {"generate x --prompt a --tokens 0", "--tokens"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = ingot(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(message)) << arguments;
    EXPECT_THAT(outcome.output, Not(HasSubstr("terminate"))) << arguments;
  }
}

TEST_F(ProgramTest, BenchStepTimesEvaluationBesideTheForwardPass) {
  const Outcome outcome = ingot(
      "bench step tiny-llama --steps 1 --set model.layers=1 --set model.width=32 --set model.heads=2 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output.substr(outcome.output.find('{')));
  const double blocks_ms = json["evaluation_blocks_ms"];
  EXPECT_GT(blocks_ms, 0);
  EXPECT_GT(json["evaluation_ms"], blocks_ms);  // the head comes on top
  EXPECT_GT(json["forward_blocks_ms"], 0);
  EXPECT_GT(json["peak_gflops"], 0);
  EXPECT_GT(json["matmul_ms"], 0);
}

TEST_F(ProgramTest, BenchStepLeavesOutProductsOnDemand) {
  const std::string command =
      "bench step tiny-llama --steps 1 --set model.layers=1 --set model.width=32 --set model.heads=2 "
      "--no-products";
  const Outcome text = ingot(command), outcome = ingot(command + " --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output.substr(outcome.output.find('{')));
  EXPECT_GT(json["step_ms"], 0);
  EXPECT_GT(json["gflops"], 0);
  for (const char* key : {"peak_gflops", "mfu", "matmul_ms"}) EXPECT_FALSE(json.contains(key)) << key;
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("ms per step"), Not(HasSubstr("mfu")), Not(HasSubstr("products"))));
}

TEST_F(ProgramTest, BenchCheckpointingPrintsItsTable) {
  const Outcome text = ingot("bench checkpointing tiny-llama --steps 1");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  for (const char* policy : {"none", "attention", "mlp", "block", "every 2nd block"})
    EXPECT_THAT(text.output, HasSubstr(policy));
  const Outcome json = ingot("bench checkpointing tiny-llama --steps 1 --json");
  EXPECT_THAT(json.output, AllOf(HasSubstr("\"rows\""), HasSubstr("\"bytes_change\"")));
}

TEST_F(ProgramTest, ErrorsInFilesNameTheLine) {
  write_file(path("bad.toml"), "preset = \"tiny-llama\"\n[optimizer]\nlrr = 1\n");
  const Outcome outcome = ingot("train " + path("bad.toml") + " --data x");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output,
              HasSubstr(path("bad.toml") + ":3: optimizer.lrr: unknown key; did you mean optimizer.lr?"));
}

TEST_F(ProgramTest, PrintConfigResolvesAndReadsBack) {
  const Outcome first = ingot("train tiny-gpt2 --data a.txt --set optimizer.lr=0.125 --print-config");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_THAT(first.output, AllOf(HasSubstr("lr = 0.125"), HasSubstr("train = [\"a.txt\"]"),
                                  HasSubstr("norm = \"layernorm\"")));
  write_file(path("again.toml"), first.output);
  EXPECT_EQ(ingot("train " + path("again.toml") + " --print-config").output, first.output);
}

TEST_F(ProgramTest, PrintProgramListsTheOperationsOfEveryStage) {
  const Outcome one = ingot("train tiny-llama --print-program");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  EXPECT_THAT(one.output,
              AllOf(HasSubstr("rank 0, units 0 to 3"), HasSubstr("attention(blocks.1.attention.qkv)"),
                    HasSubstr("kept for attention_backward"), Not(HasSubstr("rank 1"))));
  const Outcome two = ingot("train tiny-llama --print-program --set parallel.pp=2 --set parallel.tp=2");
  ASSERT_EQ(two.exit_code, 0) << two.output;
  EXPECT_THAT(two.output, AllOf(HasSubstr("rank 0, units 0 to"), HasSubstr("rank 2, units"),
                                HasSubstr("split by columns"), Not(HasSubstr("rank 1,"))));
}

// The disk fills up during a run. The run tries to save again until its end, where a failed save is an
// error. The last checkpoint stays intact, and once there is room the run can be resumed and reaches the
// weights of an undisturbed run.
TEST_F(ProgramTest, AFullDiskLosesNothing) {
  const std::filesystem::path disk = folder_ / "disk";
  make_folders(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=16m") != 0)
    GTEST_SKIP() << "SKIPPED LOUDLY: a small tmpfs cannot be mounted here (needs root)";
  std::string text;
  for (int i = 0; text.size() < 60'000; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
  write_file(path("text.txt"), text);
  const std::string arguments =
      "train tiny-llama --data " + path("text.txt") +
      " --set data.tokenizer=byte --set model.layers=1 --set model.width=32 --set model.heads=2"
      " --set model.context=32 --set train.steps=60 --set checkpoint.every=20 --set eval.every=0"
      " --set sample.tokens=4 --out ";
  const std::string run = (disk / "run").string();
  write_file((disk / "filler").string(), std::string(11'900'000, 'x'));
  const Outcome full = ingot(arguments + run);
  EXPECT_EQ(full.exit_code, 6) << full.output;
  EXPECT_THAT(full.output, AllOf(HasSubstr("are free; free some space or keep fewer"), HasSubstr(run),
                                 HasSubstr("step 40: the checkpoint could not be saved: "),
                                 HasSubstr("the run goes on and tries again in 30s"),
                                 HasSubstr("step 60: the checkpoint could not be saved: ")));
  EXPECT_THAT(read_file(run + "/run.json"), HasSubstr("\"status\": \"failed\""));

  std::filesystem::remove(disk / "filler");
  const Outcome resumed = ingot("train --resume --out " + run);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, AllOf(HasSubstr("resumed"), Not(HasSubstr("resumed at step 0"))));
  EXPECT_EQ(ingot(arguments + path("undisturbed")).exit_code, 0);
  const std::string weights = "/checkpoints/step-000000060/model.safetensors";
  EXPECT_EQ(read_file(run + weights), read_file(path("undisturbed") + weights));
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST_F(ProgramTest, ScheduleDrawsTheRun) {
  const std::string svg = path("schedule.svg");
  const Outcome outcome =
      ingot("schedule tiny-gpt2 --set train.steps=500 --set schedule.kind=wsd --out " + svg);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("500 steps"), HasSubstr("Learning rate"), HasSubstr("Momentum"),
                                    HasSubstr("Tokens per step"), HasSubstr("499 step")));
  EXPECT_THAT(read_file(svg), HasSubstr("<title>Learning rate</title>"));
  EXPECT_EQ(ingot("schedule tiny-gtp2").exit_code, 2);
  EXPECT_EQ(ingot("schedule tiny-gpt2 --set schedule.cooldown_frac=2").exit_code, 2);
}

}  // namespace
}  // namespace ingot
