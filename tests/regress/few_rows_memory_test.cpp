// The products of generation allocated packing buffers that they do not use: 6 MB per thread, absent from the
// memory plan.
#include <gtest/gtest.h>

#include <vector>

#include "ingot/ops/matmul.h"
#include "ingot/ops/matmul/matmul_engines.h"

namespace ingot {
namespace {

TEST(ProductOfFewRows, AllocatesNoPackingBuffers) {
  constexpr int64_t kRows = 2, kColumns = 100, kDepth = 50;
  std::vector<float> a(kRows * kDepth, 1.0f), b(kColumns * kDepth, 0.5f), c(kRows * kColumns);
  Stream stream;
  matmul(Tensor(c.data(), DType::f32, {kRows, kColumns}), Tensor(a.data(), DType::f32, {kRows, kDepth}),
         Tensor(b.data(), DType::f32, {kColumns, kDepth}), MatmulForm::kNT, false, stream);
  EXPECT_EQ(c.back(), 25.0f);
  EXPECT_EQ(matmul_panels(stream).portable, nullptr);
  EXPECT_EQ(matmul_panels(stream).amx, nullptr);
}

}  // namespace
}  // namespace ingot
