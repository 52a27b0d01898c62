#include <gtest/gtest.h>

#include "ingot/profile/bench_data.h"

namespace ingot {
namespace {

TEST(DataSheet, PeakIsThatOfTheNamedDeviceOrUnknown) {
  EXPECT_DOUBLE_EQ(bench::data_sheet_gflops("NVIDIA H200", DType::bf16), 989400);
  EXPECT_DOUBLE_EQ(bench::data_sheet_gflops("NVIDIA H100 80GB HBM3", DType::f32), 67000);
  EXPECT_EQ(bench::data_sheet_gflops("NVIDIA H100 PCIe", DType::bf16), 0);  // a slower card
}

}  // namespace
}  // namespace ingot
