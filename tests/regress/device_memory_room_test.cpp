// Seen in the code: with activations.policy = "auto" a run on a GPU could take all of its memory by the plan,
// and ended when the matrices for the peak of products, in no item of it, were allocated. Wanted: the plan
// has room for them, for copies of gradients while kernels are timed, and for CUDA's libraries.
#include <gtest/gtest.h>

#include "ingot/memory/memory_plan.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

TEST(DeviceMemoryRoom, IsPartOfThePlan) {
  RunConfig config = preset("gpt2-124m");
  config.model.vocab = 50304;
  config.train.device = Device::kCuda;
  config.precision.compute = DType::bf16;
  const auto room = [&] {
    uint64_t bytes = 0;
    for (const MemoryItem& item : plan_memory(config).items)
      if (item.name == "libraries and timing") bytes += item.bytes;
    return bytes;
  };
  constexpr uint64_t kLibraries = uint64_t{512} << 20;
  EXPECT_EQ(room(), kLibraries + uint64_t{2 * 8448 * 8448} * sizeof(bf16));
  config.model.ffn = 1 << 18;  // its matrix is larger than the table
  EXPECT_EQ(room(), kLibraries + uint64_t{2} * (1 << 18) * 768 * sizeof(float));
}

}  // namespace
}  // namespace ingot
