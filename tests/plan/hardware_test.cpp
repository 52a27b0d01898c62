// Tests the descriptions of hardware and their errors.
#include "ingot/plan/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLeast = "f32_tflops = 1\nbf16_tflops = 2\nmemory_gb = 3\nmemory_gb_s = 4\n";

std::string description_error(const std::string& toml) {
  try {
    parse_hardware(toml, "own.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

TEST(HardwareFiles, AreReadAndSourced) {
  EXPECT_THAT(hardware_names(), testing::ElementsAre("a100-80g", "b200", "h100-sxm", "h200-sxm"));
  for (const HardwareFile& file : hardware_files()) {
    const Hardware hardware = load_hardware(std::string(file.name));
    EXPECT_EQ(hardware.name, file.name);
    EXPECT_GT(hardware.flops_per_s(DType::bf16), hardware.flops_per_s(DType::f32));
    EXPECT_GE(hardware.flops_per_s(DType::f8e4m3), hardware.flops_per_s(DType::bf16));
    // Every figure's line says where the figure comes from.
    for (std::string_view text = file.toml; !text.empty();) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      EXPECT_TRUE(line.empty() || line.find('#') != std::string_view::npos) << file.name << ": " << line;
    }
  }
}

TEST(HardwareFiles, OfUsersTakeDefaults) {
  const Hardware hardware = parse_hardware(kLeast, "own.toml");
  EXPECT_EQ(hardware.name, "own");
  EXPECT_EQ(hardware.flops_per_s(DType::f8e4m3), 2e12) << "FP8 runs as bf16 where nothing is said";
  EXPECT_EQ(hardware.devices_per_node, 1);
}

TEST(HardwareErrors, NameFileLineAndTheNearestKey) {
  EXPECT_THAT(description_error(std::string(kLeast) + "nic_gbs = 3\n"),
              AllOf(HasSubstr("own.toml:5: nic_gbs: unknown key"), HasSubstr("did you mean nic_gb_s")));
  EXPECT_THAT(description_error(std::string(kLeast) + "devices_per_node = 2.5\n"),
              HasSubstr("own.toml:5: devices_per_node must be a whole number from 1 to"));
  EXPECT_THAT(description_error(std::string(kLeast) + "product_share = 1.5\n"),
              HasSubstr("product_share must be a number"));
  EXPECT_THAT(description_error(std::string(kLeast) + "launch_us = \"two\"\n"),
              HasSubstr("launch_us must be a number"));
  EXPECT_THAT(description_error("f32_tflops = 1\n"), HasSubstr("own.toml: bf16_tflops is missing"));
  EXPECT_THAT(description_error("f32_tflops = \n"), HasSubstr("own.toml:1: not TOML"));
  EXPECT_THAT(description_error(std::string(kLeast) + "nodes_per_rack = 2\n"),
              HasSubstr("nodes_per_rack needs rack_gb_s"));
}

TEST(HardwareErrors, NameTheNearestDescription) {
  const auto error = [](const std::string& name) -> std::string {
    try {
      load_hardware(name);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error("h100-smx"), HasSubstr("did you mean h100-sxm"));
  EXPECT_THAT(error("tpu"), HasSubstr("descriptions are a100-80g, b200, h100-sxm, h200-sxm"));
  EXPECT_THAT(error("absent.toml"), HasSubstr("absent.toml"));
}

TEST(Roofline, IsTheLongerOfProductsAndTraffic) {
  Hardware hardware = parse_hardware(kLeast, "own.toml");
  hardware.product_share = 0.5;
  hardware.memory_share = 0.25;
  const RooflineCosts costs(hardware);
  EXPECT_DOUBLE_EQ(costs.seconds({.dtype = DType::bf16, .flops = 1e12, .bytes = 1}), 1);
  EXPECT_DOUBLE_EQ(costs.seconds({.dtype = DType::f32, .flops = 1e12, .bytes = 1}), 2);
  EXPECT_DOUBLE_EQ(costs.seconds({.dtype = DType::f32, .flops = 0, .bytes = 4e9}), 4);
  hardware.launch_us = 1e6;
  EXPECT_DOUBLE_EQ(costs.seconds({.dtype = DType::f32, .flops = 0, .bytes = 4e9}), 5);
}

}  // namespace
}  // namespace ingot
