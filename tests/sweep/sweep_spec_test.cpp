// Tests of the runs of a sweep: their order, names, arguments, places on the machine, and refusals.
#include "ingot/sweep/sweep_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/sweep/sweep_jobs.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

SweepSpec spec_of(const std::vector<std::string>& vary, int64_t seeds = 1) {
  SweepSpec spec;
  spec.source = "tiny-llama";
  spec.data = {"text.txt"};
  spec.overrides = {"train.steps=8"};
  spec.seeds = seeds;
  for (const std::string& text : vary) spec.vary.push_back(parse_vary(text));
  return spec;
}

std::string refused_runs(const SweepSpec& spec) {
  return usage_error([&] { sweep_runs(spec); });
}

TEST(SweepSpec, AllCombinationsForOneSeedThenTheNext) {
  const SweepSpec spec = spec_of({"optimizer.lr=1e-3,1e-2", "model.norm=rmsnorm,layernorm"}, 2);
  const std::vector<SweepRun> runs = sweep_runs(spec);
  ASSERT_EQ(runs.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(runs[i].setting, i % 4);
    EXPECT_EQ(runs[i].seed, runs[0].seed + i / 4);
    EXPECT_EQ(runs[i].config.train.seed, runs[i].seed);
    EXPECT_EQ(runs[i].config.train.steps, 8);
  }
  EXPECT_EQ(setting_text(spec, runs[1]), "optimizer.lr=0.001 model.norm=layernorm");
  EXPECT_EQ(runs[1].config.optimizer.lr, 0.001);
  EXPECT_EQ(runs[6].name, "optimizer.lr=0.01,model.norm=rmsnorm,seed=" + std::to_string(runs[6].seed));
}

TEST(SweepSpec, SeedsCountFromTheConfigurations) {
  SweepSpec spec = spec_of({"optimizer.lr=1e-3"}, 3);
  spec.overrides.emplace_back("train.seed=40");
  std::vector<uint64_t> seeds;
  for (const SweepRun& run : sweep_runs(spec)) seeds.push_back(run.seed);
  EXPECT_THAT(seeds, ElementsAre(40, 41, 42));
}

TEST(SweepSpec, FoldersHaveShortNamesThatDiffer) {
  // The lists are too long for a folder, and differ where a name would be cut.
  std::string first, second;
  for (int i = 0; i < 8; ++i) {
    first += "\"2 linear to 1\", ";
    second += i == 7 ? "\"3 linear to 1\", " : "\"2 linear to 1\", ";
  }
  SweepSpec spec =
      spec_of({"schedule.phases=[" + first + "\"rest constant\"],[" + second + "\"rest constant\"]",
               "optimizer.lr=1e-3,1e-2"},
              2);
  spec.overrides = {"train.steps=40", "schedule.kind=phases"};
  std::set<std::string> names;
  for (const SweepRun& run : sweep_runs(spec)) {
    EXPECT_LE(run.name.size(), 120u);
    EXPECT_EQ(run.name.find_first_of(" \"[]/"), std::string::npos) << run.name;
    names.insert(run.name);
  }
  EXPECT_EQ(names.size(), 8u);
}

TEST(SweepSpec, ANewRunTakesEverySettingAndAResumedOneOnlyItsFolder) {
  const SweepSpec spec = spec_of({"optimizer.lr=1e-3"});
  const SweepRun run = sweep_runs(spec).front();
  const std::string seed = "train.seed=" + std::to_string(run.seed);
  EXPECT_THAT(train_arguments(spec, run, "out", 2, 0, false),
              ElementsAre("train", "tiny-llama", "--data", "text.txt", "--set", "checkpoint.keep=1", "--set",
                          "checkpoint.best=false", "--set", "train.steps=8", "--set", "optimizer.lr=0.001",
                          "--set", seed, "--set", "train.threads=2", "--out", "out"));
  EXPECT_THAT(train_arguments(spec, run, "out", 1, 4, true),
              ElementsAre("train", "--set", "train.threads=1", "--set", "train.stop_at=4", "--resume",
                          "--out", "out"));
}

TEST(SweepSpec, ShellLinesAreQuotedWhereNecessary) {
  EXPECT_EQ(shell_line({"ingot", "sweep", "a/b.toml", "optimizer.lr=1e-3..1e-2"}),
            "ingot sweep a/b.toml optimizer.lr=1e-3..1e-2");
  EXPECT_EQ(shell_line({"two words", "", "it's", "a$b", "*"}), R"('two words' '' 'it'\''s' 'a$b' '*')");
}

TEST(SweepSpec, RefusesWhatCannotBeTrained) {
  EXPECT_THAT(refused_runs(spec_of({"optimizer.lr=1e-3", "optimizer.lr=1e-2"})),
              AllOf(HasSubstr("optimizer.lr is given twice"), HasSubstr("--vary optimizer.lr=A,B,C")));
  EXPECT_THAT(refused_runs(spec_of({"train.seed=1,2"})), HasSubstr("--seeds N takes several"));
  EXPECT_THAT(refused_runs(spec_of({"train.stop_at=1,2"})), HasSubstr("vary train.steps"));
  EXPECT_THAT(refused_runs(spec_of({"train.threads=1,2"})), HasSubstr("is for all runs"));
  EXPECT_THAT(refused_runs(spec_of({"optimizer.lr=1e-4..1e-2:linear:1000"}, 11)),
              HasSubstr("more than 10000 runs"));
  EXPECT_THAT(refused_runs(spec_of({"optimizer.lr=-2..-1:linear:3"})), HasSubstr("optimizer.lr"));
  // A combination that no run can have is named; each value alone is a valid one.
  EXPECT_THAT(refused_runs(spec_of({"model.width=32,48", "model.heads=2,5"})),
              AllOf(HasSubstr("model.width=32 model.heads=5"), HasSubstr("model.heads")));
}

SweepMachine machine_of(int cores, uint64_t bytes) {
  SweepMachine machine{.cores = cores, .memory = {}};
  machine.memory.bytes = bytes;
  machine.memory.source = "this test";
  return machine;
}

TEST(SweepJobs, CoresAreDividedAmongTheRunsThatFit) {
  const SweepSpec spec = spec_of({"model.width=32,64"}, 2);
  const std::vector<SweepRun> runs = sweep_runs(spec);
  const SweepJobs ample = plan_jobs(spec, runs, 0, 0, machine_of(8, 1ull << 36));
  EXPECT_EQ(ample.jobs, 4);  // four runs for eight cores
  EXPECT_EQ(ample.threads, 2);
  const SweepJobs scarce = plan_jobs(spec, runs, 0, 0, machine_of(8, ample.run_bytes * 5 / 2));
  EXPECT_EQ(scarce.jobs, 2);
  EXPECT_EQ(scarce.threads, 4);
  const SweepJobs few_cores = plan_jobs(spec, runs, 0, 0, machine_of(2, 1ull << 36));
  EXPECT_EQ(few_cores.jobs, 2);
  EXPECT_EQ(few_cores.threads, 1);
}

TEST(SweepJobs, WhatTheUserAskedForStays) {
  const SweepSpec spec = spec_of({"model.width=32,64"}, 2);
  const std::vector<SweepRun> runs = sweep_runs(spec);
  const SweepJobs asked = plan_jobs(spec, runs, 3, 0, machine_of(8, 1ull << 36));
  EXPECT_EQ(asked.jobs, 3);
  EXPECT_EQ(asked.threads, 2);
  // The threads of an earlier call stay, on another machine too: they decide the results' last bits.
  const SweepJobs recorded = plan_jobs(spec, runs, 0, 4, machine_of(8, 1ull << 36));
  EXPECT_EQ(recorded.jobs, 2);
  EXPECT_EQ(recorded.threads, 4);
}

TEST(SweepJobs, RefusesRunsThatDoNotFit) {
  const SweepSpec spec = spec_of({"model.width=32,64"});
  const std::vector<SweepRun> runs = sweep_runs(spec);
  const uint64_t small = plan_jobs(spec, {runs[0]}, 1, 1, machine_of(1, 1ull << 36)).run_bytes;
  EXPECT_THAT(error_of([&] { plan_jobs(spec, runs, 0, 0, machine_of(2, small)); }, ErrorKind::kMemory),
              AllOf(HasSubstr("model.width=64: a run needs"), HasSubstr("this test")));
}

TEST(SweepJobs, ARunOfSeveralRanksTakesTheCoresAndTheMemoryOfAll) {
  const SweepSpec one = spec_of({"optimizer.lr=1e-3,1e-2"}), two = spec_of({"parallel.dp=1,2"}, 4);
  const SweepMachine machine = machine_of(8, 1ull << 36);
  const SweepJobs alone = plan_jobs(one, sweep_runs(one), 0, 0, machine);
  const SweepJobs together = plan_jobs(two, sweep_runs(two), 0, 0, machine);
  EXPECT_EQ(together.ranks, 2);
  EXPECT_EQ(together.jobs, 4);
  EXPECT_EQ(together.threads, 1);
  EXPECT_GT(together.run_bytes, alone.run_bytes * 3 / 2);
  EXPECT_EQ(plan_jobs(two, sweep_runs(two), 2, 0, machine).threads, 2);
}

std::vector<std::vector<int>> cpus_of(const SweepJobs& jobs) {
  std::vector<std::vector<int>> all;
  for (const ChildPlace& place : jobs.places) all.push_back(place.cpus);
  return all;
}

TEST(SweepJobs, RunsThatUseAllCoresHaveTheirOwn) {
  const SweepSpec spec = spec_of({"optimizer.lr=1e-3,1e-2"}), ranks = spec_of({"parallel.dp=2"}, 2);
  SweepMachine machine = machine_of(4, 1ull << 36);
  machine.cpus = {1, 3, 5, 7};
  const std::vector<std::vector<int>> halves = {{1, 3}, {5, 7}};
  EXPECT_EQ(cpus_of(plan_jobs(spec, sweep_runs(spec), 0, 0, machine)), halves);
  EXPECT_EQ(cpus_of(plan_jobs(ranks, sweep_runs(ranks), 0, 0, machine)), halves);
  // One run needs no cores of its own, and runs that leave a core free get none.
  const std::vector<std::vector<int>> any(1), both(2);
  EXPECT_EQ(cpus_of(plan_jobs(spec, sweep_runs(spec), 1, 4, machine)), any);
  EXPECT_EQ(cpus_of(plan_jobs(spec, sweep_runs(spec), 2, 1, machine)), both);
}

std::vector<std::string> environment_of(const SweepJobs& jobs) {
  std::vector<std::string> all;
  for (const ChildPlace& place : jobs.places)
    all.insert(all.end(), place.environment.begin(), place.environment.end());
  return all;
}

TEST(SweepJobs, ARunHasAGpuForEachOfItsRanks) {
  const std::vector<std::string> device = {"train.device=cuda", "optimizer.lr=1e-3,1e-2,1e-1"};
  const SweepSpec one = spec_of(device, 2);
  SweepMachine machine = machine_of(16, 1ull << 36);
  machine.gpus = {"4", "GPU-5", "6", "7"};
  const SweepJobs each = plan_jobs(one, sweep_runs(one), 0, 0, machine);
  EXPECT_EQ(each.jobs, 4);
  EXPECT_EQ(each.threads, 4);
  EXPECT_THAT(environment_of(each), ElementsAre("CUDA_VISIBLE_DEVICES=4", "CUDA_VISIBLE_DEVICES=GPU-5",
                                                "CUDA_VISIBLE_DEVICES=6", "CUDA_VISIBLE_DEVICES=7"));
  const SweepSpec pairs = spec_of({"train.device=cuda", "parallel.fsdp=2"}, 3);
  const SweepJobs two = plan_jobs(pairs, sweep_runs(pairs), 0, 0, machine);
  EXPECT_THAT(environment_of(two), ElementsAre("CUDA_VISIBLE_DEVICES=4,GPU-5", "CUDA_VISIBLE_DEVICES=6,7"));
  // More jobs than GPUs were asked for, so two of them share one.
  EXPECT_THAT(environment_of(plan_jobs(pairs, sweep_runs(pairs), 3, 0, machine)),
              ElementsAre("CUDA_VISIBLE_DEVICES=4,GPU-5", "CUDA_VISIBLE_DEVICES=6,7",
                          "CUDA_VISIBLE_DEVICES=4,GPU-5"));
  const SweepSpec eight = spec_of({"train.device=cuda", "parallel.fsdp=8"});
  EXPECT_THAT(usage_error([&] { plan_jobs(eight, sweep_runs(eight), 0, 0, machine); }),
              HasSubstr("parallel.fsdp=8: a run has 8 ranks (fsdp=8), and this machine has 4 GPUs"));
}

}  // namespace
}  // namespace ingot
