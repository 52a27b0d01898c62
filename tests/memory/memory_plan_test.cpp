// Tests that the memory plan equals what the run then takes, and that a run that does not fit is refused
// with proposals that do fit.
#include "ingot/memory/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "ingot/checkpoint/saved_state.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/memory/memory_check.h"
#include "ingot/parallel/parallelize.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunConfig planned_config(const std::vector<std::string>& assignments) {
  std::vector<std::string> all = {"model.layers=3", "model.width=64", "train.grad_accum=2",
                                  "optimizer.lr=1e-3"};
  all.insert(all.end(), assignments.begin(), assignments.end());
  return small_config(all);
}

MemoryPlan plan_of(const RunConfig& config) { return plan_memory(config); }

MemoryLimits host_limit(uint64_t bytes) {
  return {.host = {.bytes = bytes, .source = "the test"}, .device = {}, .machine = "here", .device_name = {}};
}

// Returns the message of the kMemory error, or "no error".
std::string memory_refusal(const RunConfig& config, uint64_t bytes) {
  const Mesh alone = Mesh::alone();
  return error_of([&] { check_memory(config, alone, host_limit(bytes)); }, ErrorKind::kMemory);
}

TEST(MemoryPlan, EqualsEveryArenaToTheByte) {
  const std::vector<std::vector<std::string>> configs = {
      {},
      {"optimizer.kind=adamw8bit"},
      {"optimizer.kind=sgd"},
      {"optimizer.kind=lion", "optimizer.ema=0.99"},
      {"optimizer.kind=adafactor"},
      {"model.tied=false"},
      {"precision.compute=bf16"},
      {"precision.compute=bf16", "precision.master=bf16_tail"},
      {"precision.compute=bf16", "precision.master=bf16_stochastic", "optimizer.kind=adamw8bit"},
      {"precision.compute=f16"},
      {"precision.compute=bf16", "precision.fp8=tensorwise"},
      {"head.kind=recompute"},
      {"head.kind=dense"},
      {"head.kind=chunked"},
      {"activations.policy=none"},
      {"activations.policy=block", "model.dropout=0.1"},
      {"activations.policy=sqrt"},
      {"activations.policy=every_k", "activations.k=2"},
      {"model.norm=layernorm", "model.positions=learned", "model.mlp=gelu_tanh", "model.bias=true"}};
  int tried = 0;
  for (const std::vector<std::string>& assignments : configs) {
    RunConfig config;
    try {
      config = planned_config(assignments);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    const Trainer trainer(config, parallelize(config));
    const MemoryPlan plan = plan_of(config);
    const std::vector<Trainer::ArenaUse> arenas = trainer.arenas();
    ASSERT_GT(plan.items.size(), arenas.size());
    for (size_t i = 0; i < arenas.size(); ++i) {
      EXPECT_EQ(plan.items[i].name, arenas[i].name);
      EXPECT_EQ(plan.items[i].bytes, arenas[i].bytes) << arenas[i].name << " of " << assignments.back();
    }
    ++tried;
  }
  EXPECT_EQ(tried, std::ssize(configs));
}

TEST(MemoryPlan, EqualsTheStateOfMuonToTheByte) {
  RunConfig config = planned_config({});
  GroupConfig matrices{.roles = {ParamRole::kMatrix}};
  matrices.rule.kind = "muon";
  config.optimizer.groups = {matrices};
  const Trainer trainer(config, parallelize(config));
  const MemoryPlan plan = plan_of(config);
  const std::vector<Trainer::ArenaUse> arenas = trainer.arenas();
  for (size_t i = 0; i < arenas.size(); ++i)
    EXPECT_EQ(plan.items[i].bytes, arenas[i].bytes) << arenas[i].name;
}

TEST(MemoryPlan, AnAutomaticPolicyKeepsToItsBudget) {
  const uint64_t all = plan_of(planned_config({"activations.policy=none"})).items[4].bytes;
  const RunConfig config =
      planned_config({"activations.policy=auto", fmt::format("activations.budget={}", all * 3 / 4)});
  const MemoryPlan plan = plan_of(config);
  EXPECT_EQ(plan.items[4].name, "activations");
  EXPECT_LE(plan.items[4].bytes, all * 3 / 4);
}

// A plan of terabytes works at once on any machine.
TEST(MemoryPlan, PlanningTakesNoMemory) {
  RunConfig config = preset("gpt3-175b");
  config.train.batch_size = 1;
  const MemoryPlan plan = plan_of(config);
  EXPECT_GT(plan.host_bytes(), uint64_t{175} * 1'000'000'000 * 16);
  EXPECT_LT(peak_rss_bytes(), uint64_t{4} << 30);
}

TEST(MemoryPlan, PlanningForADeviceNeedsNoDevice) {
  RunConfig config = preset("gpt2-124m");
  config.model.vocab = 50304;
  const MemoryPlan host = plan_of(config);
  config.train.device = Device::kCuda;
  const MemoryPlan device = plan_of(config);
  EXPECT_EQ(host.device_bytes(), 0u);
  EXPECT_GT(device.device_bytes(), host.host_bytes() / 2);
  EXPECT_LT(device.host_bytes(), host.host_bytes() / 2);
}

TEST(MemoryCheck, AcceptsAModelThatFits) {
  const RunConfig config = planned_config({});
  const Mesh alone = Mesh::alone();
  EXPECT_EQ(check_memory(config, alone, host_limit(plan_of(config).host_bytes())), "");
  EXPECT_EQ(check_memory(config, alone, host_limit(MemoryLimit::kUnknown)), "");
}

TEST(MemoryCheck, NamesTheLargestItemsAndChangesThatFit) {
  const std::vector<std::string> large = {"model.layers=12", "train.batch_size=512", "train.grad_accum=2"};
  const RunConfig config = planned_config(large);
  const uint64_t available = plan_of(config).host_bytes() * 3 / 4;
  const std::string message = memory_refusal(config, available);
  EXPECT_THAT(message, AllOf(HasSubstr("are available by the test; the largest: activations "),
                             HasSubstr("--set train.batch_size=256 --set train.grad_accum=4"),
                             HasSubstr("--set activations.policy=block: "), HasSubstr("train.overcommit")));
  // Every proposed change is valid, and with it the run fits.
  const std::regex line("\n  (--set .*): [^\n]*");
  int proposed = 0;
  for (std::sregex_iterator it(message.begin(), message.end(), line), end; it != end; ++it, ++proposed) {
    std::vector<std::string> assignments = large;
    const std::string sets = (*it)[1];
    const std::regex assignment("--set (\\S+)");
    for (std::sregex_iterator set(sets.begin(), sets.end(), assignment); set != end; ++set)
      assignments.push_back((*set)[1]);
    const RunConfig changed = planned_config(assignments);
    EXPECT_EQ(changed.train.batch_size * changed.train.grad_accum, 1024) << sets;
    EXPECT_LE(plan_of(changed).host_bytes(), available) << sets;
  }
  EXPECT_GE(proposed, 2);
}

TEST(MemoryCheck, ProposesPrecisionAndOptimizerWhereNoBatchIsSmallEnough) {
  const RunConfig config =
      planned_config({"model.width=512", "model.layers=8", "train.batch_size=1", "precision.compute=bf16"});
  RunConfig smaller = config;
  smaller.precision.master = Masters::kTail;
  smaller.optimizer.rule.kind = "adamw8bit";
  const std::string message = memory_refusal(config, plan_of(smaller).host_bytes() + (1 << 20));
  EXPECT_THAT(message, AllOf(HasSubstr("--set precision.master=bf16_tail --set optimizer.kind=adamw8bit"),
                             Not(HasSubstr("--set precision.master=bf16_tail: "))));
}

TEST(MemoryCheck, ProposesTheNearestWhereNothingFits) {
  const std::string message = memory_refusal(planned_config({"train.batch_size=64"}), 1 << 20);
  EXPECT_THAT(message, AllOf(HasSubstr("No change of batch, activations, precision and optimizer fits"),
                             HasSubstr("--set train.batch_size=1 --set train.grad_accum=128"),
                             HasSubstr("--set optimizer.kind=adamw8bit: "), Not(HasSubstr("What fits"))));
}

TEST(MemoryCheck, OnlyWarnsWithOvercommit) {
  const RunConfig config = planned_config({"train.overcommit=true"});
  const Mesh alone = Mesh::alone();
  EXPECT_THAT(check_memory(config, alone, host_limit(1 << 20)), HasSubstr("1 MB are available"));
}

uint64_t item_bytes(const RunConfig& config, const std::string& name) {
  const std::vector<MemoryItem> items = plan_of(config).items;
  const auto item = std::ranges::find(items, name, &MemoryItem::name);
  return item == items.end() ? 0 : item->bytes;
}

// The plan counts the copy that a run makes to write checkpoints concurrently with training.
TEST(MemoryPlan, CountsTheCopyOfTheStateForCheckpoints) {
  for (const std::vector<std::string>& assignments :
       {std::vector<std::string>{},
        {"precision.compute=bf16", "precision.master=bf16_tail"},
        {"optimizer.kind=adamw8bit", "optimizer.ema=0.9"}}) {
    RunConfig config = planned_config(assignments);
    config.checkpoint.every = 5;
    Mesh alone = Mesh::alone();
    Trainer trainer(config, parallelize(config, alone));
    uint64_t largest = 0;  // the f32 values of bf16 weights, one parameter at a time
    if (trainer.params().masters() != Masters::kF32)
      for (const ParamSpec& spec : trainer.params().list().specs())
        largest = std::max(largest, static_cast<uint64_t>(spec.elements()) * sizeof(float));
    const uint64_t copy = SavedState(trainer).copy_bytes(),
                   planned = item_bytes(config, "copy for checkpoints");
    EXPECT_LE(planned, copy + largest);
    EXPECT_GE(planned + (64 << 10), copy + largest) << "all but the padding between tensors";
    config.checkpoint.is_async = false;
    EXPECT_EQ(item_bytes(config, "copy for checkpoints"), largest);
  }
}

TEST(MemoryCheck, ARunWithoutRoomForTheCopyWaitsForItsCheckpoints) {
  RunConfig config = planned_config({});
  config.checkpoint.every = 5;
  const Mesh alone = Mesh::alone();
  const MemoryLimits enough = host_limit(plan_of(config).host_bytes());
  const MemoryLimits less = host_limit(plan_of(config).host_bytes() - 1);
  EXPECT_EQ(no_room_for_copy(config, alone, enough), "");
  EXPECT_THAT(no_room_for_copy(config, alone, less),
              AllOf(HasSubstr("training waits while a checkpoint is saved"), HasSubstr("by the test")));
  config.checkpoint.has_room = false;
  EXPECT_FALSE(config.checkpoint.copies_state());
  EXPECT_EQ(no_room_for_copy(config, alone, less), "");
  EXPECT_EQ(check_memory(config, alone, less), "");
}

TEST(MemoryCheck, ComparesTheFreeMemoryOfADevice) {
  RunConfig config = preset("gpt2-124m");
  config.model.vocab = 50304;
  config.train.device = Device::kCuda;
  MemoryLimits limits = host_limit(uint64_t{1} << 50);
  limits.device = {.bytes = uint64_t{1} << 30, .source = "the device's free memory"};
  const Mesh alone = Mesh::alone();
  EXPECT_THAT(error_of([&] { check_memory(config, alone, limits); }),
              AllOf(HasSubstr("of the device's memory"), HasSubstr("1.1 GB are available")));
}

struct Measured {
  double peak_bytes;          // resident memory of a run
  double planned_bytes;       // the plan's total
  double planned_rest_bytes;  // the same without the program and its libraries
};

// Runs the program for two steps.
Measured measure_peak(const std::string& preset_name, std::vector<std::string> assignments) {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += fmt::format("line {} of a text that is read\n", i);
  write_file(folder / "text.txt", text);
  for (const char* both :
       {"data.tokenizer=byte", "train.steps=2", "schedule.warmup_steps=0", "sample.tokens=4"})
    assignments.emplace_back(both);
  ConfigBuilder builder;
  builder.add_source(preset_name);
  builder.add_texts("data.train", {(folder / "text.txt").string()}, "--data");
  std::string command = fmt::format("OMP_WAIT_POLICY=passive {} train {} --data {} --out {}", INGOT_PROGRAM,
                                    preset_name, (folder / "text.txt").string(), (folder / "run").string());
  for (const std::string& assignment : assignments) {
    builder.add_override(assignment);
    command += " --set " + assignment;
  }
  EXPECT_EQ(std::system((command + " > " + (folder / "output").string() + " 2>&1").c_str()), 0)
      << read_file(folder / "output");
  const auto summary = nlohmann::json::parse(read_file(folder / "run/run.json"));
  const double peak = summary.at("peak_rss_bytes").get<double>();
  const MemoryPlan plan = plan_of(builder.build());
  const double planned = static_cast<double>(plan.host_bytes());
  const auto program = std::ranges::find(plan.items, "program", &MemoryItem::name);
  fmt::print("{}: planned {:.1f} MB, peak {:.1f} MB\n", preset_name, planned * 1e-6, peak * 1e-6);
  return {peak, planned, planned - static_cast<double>(program->bytes)};
}

TEST(LongMemoryPlan, IsCloseToThePeakOfARun) {
  const auto program_mb_of = [](const Measured& measured) {
    return (measured.peak_bytes - measured.planned_rest_bytes) * 1e-6;
  };
  // A run of 0.1M parameters takes little more than the program and its libraries: 24 MB on a Zen 3, more
  // where oneDNN generates code for AVX-512. A larger run has the same and further kernels.
  const double least_mb = program_mb_of(
      measure_peak("tiny-llama", {"eval.max_tokens=2k", "train.max_time=0s", "checkpoint.async=false"}));
  EXPECT_GT(least_mb, 15);
  for (const char* saves : {"checkpoint.async=false", "checkpoint.every=1"}) {  // without and with the copy
    const Measured measured = measure_peak("books-10m", {"train.batch_size=4", "train.grad_accum=1",
                                                         "eval.max_tokens=2k", "train.max_time=0s", saves});
    // The program and its libraries take up to 70 MB, which depends on the processor, and on whether slow
    // steps leave time for the products that measure its peak (run/peak.h).
    EXPECT_GT(program_mb_of(measured), least_mb) << saves;
    EXPECT_LT(program_mb_of(measured), 70) << saves;
  }
}

TEST(SlowMemoryPlan, IsCloseToThePeakOfARunOf124M) {
  const Measured measured =
      measure_peak("gpt2-124m", {"train.batch_size=1", "train.grad_accum=1", "eval.max_tokens=2k",
                                 "train.max_time=0s", "sample.count=0", "checkpoint.async=false"});
  const double ratio = measured.peak_bytes / measured.planned_bytes;
  EXPECT_GT(ratio, 0.95);
  EXPECT_LT(ratio, 1.03);
}

}  // namespace
}  // namespace ingot
