// Tests of the command `ingot plan`, run as a separate process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"
#include "tests/regress/run_script.h"

namespace ingot {
namespace {
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PlanCommand : public FolderTest {
 protected:
  // Runs `ingot plan ARGUMENTS` in the test's folder, with a cache of its own.
  Outcome run(const std::string& arguments) const {
    return run_command("cd '" + folder_.string() +
                       "' && XDG_CACHE_HOME=cache OMP_NUM_THREADS=1 '" INGOT_PROGRAM "' plan " + arguments);
  }

  // Returns the object that --json prints, without the messages on stderr.
  static nlohmann::json object_in(const std::string& output) {
    std::istringstream lines(output);
    std::string line;
    while (std::getline(lines, line) && !line.starts_with("{")) {
    }
    return nlohmann::json::parse(line);
  }
};

TEST_F(PlanCommand, PlansEveryPresetOnGpus) {
  for (const char* preset :
       {"gpt2-124m", "hybrid-124m", "llama-1b", "llama-1b-h100", "llama2-7b", "llama2-70b", "gpt3-175b"}) {
    const Outcome result = run(std::string(preset) + " --hardware h200-sxm --set train.grad_accum=8 --json");
    const auto json = object_in(result.output);
    EXPECT_EQ(result.exit_code, json["fits"] ? 0 : 4) << preset << ": " << result.output;
    EXPECT_EQ(json["hardware"], "h200-sxm");
    EXPECT_GT(json["mfu"], 0.05) << preset;
    // FP8 products may be faster than the peak of bf16, which MFU counts by.
    EXPECT_LT(json["mfu"], std::string(preset) == "llama-1b-h100" ? 1.6 : 0.8) << preset;
  }
}

TEST_F(PlanCommand, MeasuresThisMachineOnceAndDraws) {
  const std::string arguments = "tiny-gpt2 --out plan.svg --trace plan.json";
  const Outcome first = run(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_THAT(first.output, AllOf(HasSubstr("this machine"), HasSubstr("a step of 512 tokens"),
                                  HasSubstr("written: plan.svg")));
  EXPECT_THAT(read_file(folder_ / "plan.svg"),
              AllOf(HasSubstr("<svg"), HasSubstr("activations"), HasSubstr("backward")));
  EXPECT_GT(nlohmann::json::parse(read_file(folder_ / "plan.json")).size(), 5);
  const auto step = [&] {
    const auto json = object_in(run("tiny-gpt2 --json").output);
    return json["step_s"].get<double>();
  };
  EXPECT_EQ(step(), step()) << "the second plan measured again";
}

TEST_F(PlanCommand, TakesAFileOfItsUsersHardware) {
  const Outcome missing = run("gpt2-124m --hardware own.toml");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.output, HasSubstr("own.toml"));
  write_file(folder_ / "own.toml", "name = \"own\"\n[device]\nbf16_flop = 1e12\n");
  const Outcome wrong = run("gpt2-124m --hardware own.toml");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.output, AllOf(HasSubstr("own.toml:3"), HasSubstr("did you mean device.bf16_flops")));
}

TEST_F(PlanCommand, NamesTheNearestOfWhatItCannotPlan) {
  const auto error = [&](const std::string& arguments) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    return result.output;
  };
  EXPECT_THAT(error("gpt2-124m --hardware h100-smx"), HasSubstr("h100-sxm"));
  EXPECT_THAT(error("gpt2-124m --hardware h100-sxm --set parallel.tp=5"), HasSubstr("parallel.tp"));
  EXPECT_THAT(error("gpt2-124m --hardware h100-sxm --set parallel.fsdp=4 --ranks 6"),
              HasSubstr("--ranks 6 is no multiple of the 4 ranks of fsdp=4; the nearest is 8"));
  EXPECT_THAT(error("gpt2-124m --hardware h100-sxm --trace t.json --trace-rank 3"),
              HasSubstr("ranks 0 to 0"));
  EXPECT_THAT(error("gpt2-142m --hardware h100-sxm"), HasSubstr("gpt2-124m"));
  EXPECT_FALSE(fs::exists(folder_ / "t.json"));
}

TEST_F(PlanCommand, SearchesLayoutsAndSaysIfNoneFits) {
  const Outcome found =
      run("gpt2-124m --hardware h100-sxm --ranks 4 --search --set train.grad_accum=8 --json");
  ASSERT_EQ(found.exit_code, 0) << found.output;
  EXPECT_GT(nlohmann::json::parse(found.output)["best"].size(), 3);
  const Outcome none = run(
      "gpt3-175b --hardware a100-80g --ranks 2 --search --set train.batch_size=2 --set train.grad_accum=1");
  EXPECT_EQ(none.exit_code, 4) << none.output;
  EXPECT_THAT(none.output, HasSubstr("no layout of 2 ranks fits into 80.0 GB"));
}

// Seen: exit code 0 for a plan that does not fit and 4 for the search, which advised more ranks where the
// plan had named settings that fit.
TEST_F(PlanCommand, ThePlanAndItsSearchAgreeOnWhatFits) {
  for (const char* how : {"", " --search"}) {
    const Outcome result = run(std::string("llama-1b --set train.grad_accum=2 --hardware 16GB") + how);
    EXPECT_EQ(result.exit_code, 4) << how << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("--set optimizer.kind=adamw8bit"), HasSubstr("16.0 GB")))
        << how;
    EXPECT_THAT(result.output, ::testing::Not(HasSubstr("take more ranks"))) << how;
  }
  for (const char* how : {"", " --search"})
    EXPECT_EQ(run(std::string("gpt2-124m --set train.grad_accum=2 --hardware 24GB") + how).exit_code, 0)
        << how;
}

// Seen: "arena 'activations': the system refused 94086.50 GiB" and "take a smaller model".
TEST_F(PlanCommand, ABatchInTokensIsRecognised) {
  const Outcome result = run("gpt2-124m --set train.batch_size=524288");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(
      result.output,
      HasSubstr(
          "counts sequences of 1024 tokens, which are 5.37e+08 tokens at a time; a step of 524288 tokens "
          "is train.batch_size=4 train.grad_accum=128"));
  EXPECT_EQ(run("gpt2-124m --set train.batch_size=100000").exit_code, 2);
}

// Seen: only halves of a batch were tried, so that the least of 3125 sequences was 3125.
TEST_F(PlanCommand, ABatchThatFitsIsFoundForAnyNumber) {
  const Outcome result =
      run("gpt2-124m --hardware 16GB --set train.grad_accum=1 --set train.batch_size=3125");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.output, HasSubstr("--set train.batch_size=25 --set train.grad_accum=125"));
  EXPECT_THAT(result.output, ::testing::Not(HasSubstr("Take a smaller model")));
}

TEST_F(PlanCommand, TellsTheCopyForCheckpointsApartAndWhatItMeasures) {
  const Outcome first = run("tiny-gpt2");
  EXPECT_THAT(first.output, AllOf(HasSubstr("but for the copy while a checkpoint is written"),
                                  HasSubstr("measuring steps of")));
  EXPECT_EQ(run("tiny-gpt2").output.find("measuring steps of"), std::string::npos) << "measured twice";
  const auto json = object_in(run("tiny-gpt2 --json").output);
  EXPECT_GT(json["ranks"][0]["copy_for_checkpoints_bytes"], 0);
}

// Seen: products of FP8 were planned at the speed of bf16, without a word.
TEST_F(PlanCommand, AFormatThatTheHardwareLacksIsNamed) {
  const auto refused = [&](const std::string& arguments) {
    return object_in(run("gpt2-124m --json --set precision.compute=bf16 " + arguments).output)["refused"];
  };
  EXPECT_THAT(refused("--set precision.fp8=tensorwise --hardware a100-80g").get<std::string>(),
              HasSubstr("precision.fp8: a100-80g has compute capability 8.0"));
  EXPECT_THAT(refused("--set precision.fp8=rowwise --hardware 4090").get<std::string>(), HasSubstr("8.9"));
  EXPECT_TRUE(refused("--set precision.fp8=tensorwise --hardware 4090").is_null());
  EXPECT_TRUE(refused("--set precision.fp8=rowwise --hardware h100-sxm").is_null());
  EXPECT_TRUE(refused("--hardware a100-80g").is_null());
}

TEST_F(PlanCommand, AnUnknownOptionForADeviceNamesHardware) {
  EXPECT_THAT(run("gpt2-124m --gpu 4090").output, HasSubstr("did you mean --hardware?"));
}

}  // namespace
}  // namespace ingot
