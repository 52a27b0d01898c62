// Runs the tests if there is a device. Without one it prints the reason and exits with 77,
// which ctest shows as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "ingot/core/cuda/cuda_device.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (::testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const auto devices = ingot::cuda::devices();
  if (devices.empty()) {
    std::printf("skipped, no CUDA device: %s\n", ingot::cuda::no_device_reason().c_str());
    return 77;
  }
  std::printf("on %s\n", devices.front().name.c_str());
  return RUN_ALL_TESTS();
}
