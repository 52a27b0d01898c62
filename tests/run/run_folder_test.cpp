#include "ingot/run/record/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

class RunFolderTest : public FolderTest {
 protected:
  std::string refusal(bool is_resume, ErrorKind kind = ErrorKind::kUsage) {
    return error_of([&] { const RunFolder run(run_, is_resume); }, kind);
  }

  std::filesystem::path run_ = folder_ / "run";
};

TEST_F(RunFolderTest, AUsedFolderIsOnlyOpenedToResume) {
  {
    const RunFolder run(run_, false);
    run.write_config(RunConfig());
    write_file(run.metrics(), "{\"step\":1,\"loss\":2.5}\n");
    make_folders(run.checkpoints() / "step-000000001");
  }
  EXPECT_THAT(refusal(false), ::testing::AllOf(HasSubstr(run_.string()), HasSubstr("--resume")));
  EXPECT_EQ(refusal(true), "no error");
}

TEST_F(RunFolderTest, ResumingAnEmptyFolderIsRefused) {
  EXPECT_THAT(refusal(true), HasSubstr("holds no run to resume"));
  EXPECT_FALSE(std::filesystem::exists(run_));
}

TEST_F(RunFolderTest, ASecondProcessIsRefused) {
  auto run = std::make_unique<RunFolder>(run_, false);
  run->write_config(RunConfig());
  EXPECT_THAT(refusal(true), HasSubstr(fmt::format("another process (pid {})", getpid())));
  EXPECT_THAT(refusal(false), HasSubstr("another process"));
  run.reset();
  EXPECT_EQ(refusal(true), "no error");
}

TEST_F(RunFolderTest, FilesOfOthersAreLeftAlone) {
  make_folders(run_);
  write_file(run_ / "thesis.txt", "mine");
  EXPECT_THAT(refusal(false), HasSubstr("is not empty"));
  EXPECT_EQ(read_file(run_ / "thesis.txt"), "mine");
}

TEST_F(RunFolderTest, AFileInPlaceOfTheFolderIsRefused) {
  write_file(run_, "a file");
  EXPECT_THAT(refusal(false), HasSubstr("is a file"));
  run_ = "/proc/no-such/run";
  EXPECT_THAT(refusal(false, ErrorKind::kDisk), HasSubstr("/proc"));
}

TEST_F(RunFolderTest, ConfigReadsBackUnchanged) {
  RunConfig config;
  config.preset = "demo";
  config.train.steps = 17;
  const RunFolder run(run_, false);
  run.write_config(config);
  ConfigBuilder builder;
  builder.add_source(run.config().string());
  EXPECT_EQ(config_hash(builder.build()), config_hash(config));
  EXPECT_EQ(builder.build().preset, "demo");
}

TEST_F(RunFolderTest, SummaryHasItsFieldsInOrderAndTheMachine) {
  const RunFolder run(run_, false);
  run.write_summary({.status = "completed",
                     .steps = 3,
                     .tokens = 96,
                     .val_loss = 1.5,
                     .val_bits_per_byte = std::nan(""),
                     .wall_s = 2,
                     .train_s = 1,
                     .peak_rss_bytes = 7,
                     .non_finite_gradients = 2,
                     .config_hash = "00ff"});
  const auto json = nlohmann::ordered_json::parse(read_file(run.summary()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, ::testing::ElementsAre(
                        "program", "libraries", "threads", "threads_limit", "machine", "process", "data",
                        "init_from", "begin", "end", "status", "exit_code", "error", "steps", "tokens",
                        "val_loss", "val_bits_per_byte", "wall_s", "train_s", "product_peak_gflops", "ranks",
                        "peak_rss_bytes", "non_finite_gradients", "config_hash", "parts"));
  EXPECT_EQ(json["non_finite_gradients"], 2);
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["val_loss"], 1.5);
  EXPECT_TRUE(json["val_bits_per_byte"].is_null());
  EXPECT_GE(json["machine"]["cores"], 1);
}

TEST(RunName, ConsistsOfSourceAndTime) {
  EXPECT_EQ(default_run_name("configs/my.toml", 0).substr(0, 3), "my-");
  EXPECT_EQ(default_run_name("demo", 0).size(), std::string("demo-19700101-000000").size());
  EXPECT_EQ(default_run_name("", 0).substr(0, 4), "run-");
}

TEST(Machine, IsDescribed) {
  const MachineInfo machine = machine_info();
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_bytes, machine.memory_free_bytes);
  EXPECT_GT(machine.memory_free_bytes, 0u);
  EXPECT_FALSE(machine.compiler.empty());
  EXPECT_GT(peak_rss_bytes(), 1'000'000u);
  EXPECT_GT(free_disk_bytes("no/such/folder"), 0u);
}

}  // namespace
}  // namespace ingot
