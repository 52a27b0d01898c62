// Tests of the command `ingot plan`, run as a separate process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "ingot/core/file.h"

namespace ingot::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PlanCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    folder = fs::path(::testing::TempDir()) / ("ingot_plan_command_" + std::to_string(::getpid()));
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  struct Result {
    int exit_code;
    std::string output;  // stdout and stderr
  };
  // Runs `ingot plan ARGUMENTS` in the test's folder, with a cache of its own.
  Result run(const std::string& arguments) const {
    const std::string command = "cd '" + folder.string() +
                                "' && XDG_CACHE_HOME=cache OMP_NUM_THREADS=1 '" INGOT_PROGRAM "' plan " +
                                arguments + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    Result result{-1, {}};
    for (int c; (c = std::fgetc(pipe)) != EOF;) result.output += static_cast<char>(c);
    result.exit_code = WEXITSTATUS(::pclose(pipe));
    return result;
  }

  fs::path folder;
};

TEST_F(PlanCommand, PlansEveryPresetOnGpus) {
  for (const char* preset :
       {"gpt2-124m", "hybrid-124m", "llama-1b", "llama-1b-h100", "llama2-7b", "llama2-70b", "gpt3-175b"}) {
    const Result result = run(std::string(preset) + " --hardware h200-sxm --set train.grad_accum=8 --json");
    ASSERT_EQ(result.exit_code, 0) << preset << ": " << result.output;
    const auto json = nlohmann::json::parse(result.output);
    EXPECT_EQ(json["hardware"], "h200-sxm");
    EXPECT_GT(json["mfu"], 0.05) << preset;
    // FP8 products may be faster than the peak of bf16, which MFU counts by.
    EXPECT_LT(json["mfu"], std::string(preset) == "llama-1b-h100" ? 1.6 : 0.8) << preset;
  }
}

TEST_F(PlanCommand, MeasuresThisMachineOnceAndDraws) {
  const std::string arguments = "tiny-gpt2 --out plan.svg --trace plan.json";
  const Result first = run(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_THAT(first.output, AllOf(HasSubstr("this machine"), HasSubstr("a step of 512 tokens"),
                                  HasSubstr("written: plan.svg")));
  EXPECT_THAT(read_file(folder / "plan.svg"),
              AllOf(HasSubstr("<svg"), HasSubstr("activations"), HasSubstr("backward")));
  EXPECT_GT(nlohmann::json::parse(read_file(folder / "plan.json")).size(), 5);
  const auto step = [&] {
    const auto json = nlohmann::json::parse(run("tiny-gpt2 --json").output);
    return json["step_s"].get<double>();
  };
  EXPECT_EQ(step(), step()) << "the second plan measured again";
}

TEST_F(PlanCommand, TakesAFileOfItsUsersHardware) {
  const Result missing = run("gpt2-124m --hardware own.toml");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.output, HasSubstr("own.toml"));
  write_file(folder / "own.toml", "name = \"own\"\n[device]\nbf16_flop = 1e12\n");
  const Result wrong = run("gpt2-124m --hardware own.toml");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.output, AllOf(HasSubstr("own.toml:3"), HasSubstr("did you mean device.bf16_flops")));
}

TEST_F(PlanCommand, NamesTheNearestOfWhatItCannotPlan) {
  const auto error = [&](const std::string& arguments) {
    const Result result = run(arguments);
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
  EXPECT_FALSE(fs::exists(folder / "t.json"));
}

TEST_F(PlanCommand, SearchesLayoutsAndSaysIfNoneFits) {
  const Result found =
      run("gpt2-124m --hardware h100-sxm --ranks 4 --search --set train.grad_accum=8 --json");
  ASSERT_EQ(found.exit_code, 0) << found.output;
  EXPECT_GT(nlohmann::json::parse(found.output)["best"].size(), 3);
  const Result none = run(
      "gpt3-175b --hardware a100-80g --ranks 2 --search --set train.batch_size=2 --set train.grad_accum=1");
  EXPECT_EQ(none.exit_code, 4) << none.output;
  EXPECT_THAT(none.output, HasSubstr("no layout of 2 ranks fits into 80.0 GB"));
}

}  // namespace
}  // namespace ingot::testing
