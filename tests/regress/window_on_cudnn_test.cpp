// A model with a window trained with Ingot's slow attention on a device, because cuDNN's graph for it was
// never asked for.
#include <gtest/gtest.h>

#include "ingot/ops/attention/attention_graph.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

TEST(WindowOnCudnn, IsPartOfItsGraph) {
  const Buffer q(DType::bf16, {1, 16, 2, 64});
  const auto with = [&](int64_t window) {
    return fused_attention({.out = q, .q = q, .k = q, .v = q}, {.scale = 1, .window = window});
  };
  ASSERT_TRUE(with(4));
  EXPECT_EQ(with(4)->window, 4);
  ASSERT_TRUE(with(16));  // hides nothing
  EXPECT_EQ(with(16)->window, 0);
}

}  // namespace
}  // namespace ingot::test
