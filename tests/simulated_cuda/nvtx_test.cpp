// The ranges and the launches that a profiler sees of training steps.
#include <gmock/gmock.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/core/nvtx.h"
#include "ingot/profile/bench_step.h"
#include "tests/config/built_config.h"

namespace {

// Ranges in the order of their begins, each with the names of those that it lies in: "timed steps/forward".
struct Ranges {
  std::vector<std::string> begun, open;
  int64_t ended_without_begin = 0;
};
Ranges& ranges() {
  static Ranges all;
  return all;
}

int begin_range(const char* name) {
  std::vector<std::string>& open = ranges().open;
  open.push_back((open.empty() ? "" : open.back() + "/") + name);
  ranges().begun.push_back(open.back());
  return static_cast<int>(open.size()) - 1;
}

int end_range() {
  std::vector<std::string>& open = ranges().open;
  if (open.empty())
    ++ranges().ended_without_begin;
  else
    open.pop_back();
  return static_cast<int>(open.size());
}

int receive_ranges(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned count = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count)) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(begin_range);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(end_range);
  return 1;
}

// NVTX calls the function behind this pointer, an injection, before the first range. nsys sets it in its way.
[[maybe_unused]] const bool is_injected = (InitializeInjectionNvtx2_fnptr = receive_ranges) != nullptr;

}  // namespace

namespace ingot {
namespace {

constexpr int64_t kSteps = 3, kMicros = 2, kBlocks = 2;

StepBench timed(const std::vector<std::string>& more) {
  const RunConfig config = built_config(
      "tiny-llama",
      {"train.device=cuda", "model.vocab=64", "model.width=16", "model.heads=2", "model.kv_heads=0",
       "model.layers=2", "model.context=8", "train.batch_size=2", "train.grad_accum=2"},
      more);
  ranges() = {};
  return bench_step(config, {.steps = kSteps, .times_products = false});
}

// Returns how often a range of this name lies in the timed steps.
int64_t number_of(const std::string& name) {
  return std::ranges::count_if(ranges().begun, [&](const std::string& range) {
    return range.starts_with("timed steps/") && range.ends_with("/" + name);
  });
}

TEST(Nvtx, AProfilerSeesTheTimedStepsAndTheirPhases) {
  if (!nvtx_listener()) GTEST_SKIP() << "ingot was built without CUDA, and so without NVTX";
  timed({});
  EXPECT_EQ(std::ranges::count(ranges().begun, "timed steps"), 1);
  EXPECT_EQ(number_of("forward"), kSteps * kMicros);
  EXPECT_EQ(number_of("backward"), kSteps * kMicros);
  EXPECT_EQ(number_of("optimizer"), kSteps);
  for (int64_t block = 0; block < kBlocks; ++block)
    EXPECT_GE(number_of("block " + std::to_string(block)), 2 * kSteps * kMicros) << block;
  EXPECT_THAT(ranges().open, testing::IsEmpty());
  EXPECT_EQ(ranges().ended_without_begin, 0);
}

TEST(Nvtx, GraphsReplaceTheLaunchesOfTheirKernels) {
  const StepBench eager = timed({}), graph = timed({"train.graph=true"});
  EXPECT_GT(eager.launches.kernels, 50);
  EXPECT_GT(eager.launches.libraries, 20);  // products
  EXPECT_EQ(eager.launches.graphs, 0);
  EXPECT_GE(graph.launches.graphs, kMicros);
  EXPECT_LT(graph.launches.kernels, eager.launches.kernels / 4);
  EXPECT_LT(graph.launches.libraries, eager.launches.libraries / 4);
}

}  // namespace
}  // namespace ingot
