// A product with K = 0 is a sum of nothing: c is zero, or stays as it is if it accumulates. The portable and
// the AMX engine left an f32 c as it was and rounded the contents of their buffers into a 16-bit c.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "ingot/ops/matmul.h"
#include "ingot/ops/matmul/matmul_engines.h"

namespace ingot {
namespace {

class EmptyProduct : public ::testing::TestWithParam<MatmulForm> {
 protected:
  static constexpr int64_t kRows = 32, kColumns = 48, kStride = 64;
  // 0x4040 is 3 in bf16 and 2.125 in f16, and two of them are 3.0039 in f32.
  std::vector<uint16_t> memory = std::vector<uint16_t>(2 * kRows * kStride, 0x4040);
  Stream stream;

  void multiply(DType in, DType out, bool accumulate) {
    const MatmulForm form = GetParam();
    float none = 0;
    const Tensor a(&none, in, form == MatmulForm::kTN ? Shape{0, kRows} : Shape{kRows, 0});
    const Tensor b(&none, in, form == MatmulForm::kNT ? Shape{kColumns, 0} : Shape{0, kColumns});
    const Tensor whole(memory.data(), out, {kRows, kStride});
    matmul(whole.columns(0, kColumns), a, b, form, accumulate, stream);
  }
  // Returns true if all words of c are `word` and those outside c are unchanged. An element is `words`
  // words long.
  bool is_filled(uint16_t word, int64_t words) const {
    for (int64_t i = 0; i < kRows * kStride * words; ++i) {
      const bool is_in_c = i / words % kStride < kColumns;
      if (memory[static_cast<size_t>(i)] != (is_in_c ? word : 0x4040)) return false;
    }
    return true;
  }
};

TEST_P(EmptyProduct, IsZeroInEveryDtype) {
  for (const DType in : {DType::f32, DType::bf16, DType::f16})
    for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
      if (in == DType::f32 && out != DType::f32) continue;
      memory.assign(memory.size(), 0x4040);
      multiply(in, out, false);
      EXPECT_TRUE(is_filled(0, out == DType::f32 ? 2 : 1)) << name(in) << ' ' << name(out);
    }
}

TEST_P(EmptyProduct, AddsNothing) {
  multiply(DType::f32, DType::f32, true);
  EXPECT_TRUE(is_filled(0x4040, 2));
  multiply(DType::bf16, DType::f32, true);
  EXPECT_TRUE(is_filled(0x4040, 2));
}

INSTANTIATE_TEST_SUITE_P(Forms, EmptyProduct,
                         ::testing::Values(MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN));

// The name of the engine of bf16 says AMX if the processor has the tile unit and the build uses it.
TEST(MatmulEngine, NamesTheAmxKernelForBf16Only) {
  const auto says_amx = [](DType dtype) {
    return std::string_view(matmul_engine(dtype)).find("AMX") != std::string_view::npos;
  };
  EXPECT_FALSE(says_amx(DType::f32));
  EXPECT_FALSE(says_amx(DType::f16));
#ifdef __AMX_BF16__
  EXPECT_EQ(says_amx(DType::bf16), amx::is_available());
#else
  EXPECT_FALSE(says_amx(DType::bf16));
#endif
}

}  // namespace
}  // namespace ingot
