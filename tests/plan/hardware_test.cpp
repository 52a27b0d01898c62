#include "ingot/plan/hardware.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using testing::HasSubstr;

std::string h100_toml() {
  for (const HardwareFile& file : hardware_files())
    if (file.name == "h100-sxm") return std::string(file.toml);
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Hardware, BuiltInDescriptionsHaveTheDatasheetsFigures) {
  const Hardware h100 = find_hardware("h100-sxm"), h200 = find_hardware("h200-sxm"),
                 b200 = find_hardware("b200"), a100 = find_hardware("a100-80g");
  EXPECT_NEAR(h100.device.bf16_flops, 989e12, 1e12);
  EXPECT_NEAR(h100.device.fp8_flops, 2 * h100.device.bf16_flops, 1e12);
  EXPECT_EQ(h100.device.hbm_bytes_per_s, 3.35e12);
  EXPECT_EQ(h100.node.link_bytes_per_s, 450e9);
  EXPECT_EQ(h100.network.nic_bytes_per_s, 400e9 / 8);
  EXPECT_EQ(h200.device.hbm_bytes_per_s, 4.8e12);
  EXPECT_EQ(h200.device.hbm_bytes, 141e9);
  EXPECT_EQ(b200.device.bf16_flops, 2250e12);
  EXPECT_EQ(b200.node.link_bytes_per_s, 900e9);
  EXPECT_EQ(a100.device.bf16_flops, 312e12);
  EXPECT_EQ(a100.device.fp8_flops, 0);
  EXPECT_EQ(a100.network.nic_bytes_per_s, 200e9 / 8);
}

TEST(Hardware, EveryFigureOfABuiltInFileHasASource) {
  ASSERT_EQ(hardware_files().size(), 9u);
  for (const HardwareFile& file : hardware_files()) {
    EXPECT_EQ(find_hardware(std::string(file.name)).name, file.name);
    std::istringstream lines{std::string(file.toml)};
    for (std::string line; std::getline(lines, line);) {
      const bool is_figure = line.find(" = ") != std::string::npos && !line.starts_with("name");
      const size_t comment = line.find("  # ");
      EXPECT_TRUE(!is_figure || (comment != std::string::npos && line.size() > comment + 10))
          << file.name << ": " << line;
    }
  }
}

TEST(Hardware, AnUnknownNameGivesTheNearest) {
  const std::string error = usage_error([] { find_hardware("h100-smx"); });
  EXPECT_THAT(error, HasSubstr("no hardware is called \"h100-smx\"; did you mean h100-sxm?"));
  EXPECT_THAT(error, HasSubstr("a100-80g, b200, h100-sxm, h200-sxm, rtx-3080"));
}

TEST(Hardware, ADeviceIsFoundByTheNamesThatPeopleUse) {
  for (const char* name : {"rtx-4090", "RTX 4090", "4090", "NVIDIA GeForce RTX 4090"})
    EXPECT_EQ(find_hardware(name).name, "rtx-4090") << name;
  EXPECT_EQ(find_hardware("H100").name, "h100-sxm");
  EXPECT_THAT(usage_error([] { find_hardware("rtx"); }), AllOf(HasSubstr("rtx-3090"), HasSubstr("rtx-4090")));
}

TEST(Hardware, AMemoryStandsForADeviceOfThatSize) {
  const Hardware small = find_hardware("16GB"), gib = find_hardware("24 GiB");
  EXPECT_EQ(small.device.hbm_bytes, 16e9);
  EXPECT_EQ(small.name, "16GB (as fast as rtx-4080)");
  EXPECT_EQ(gib.device.hbm_bytes, 24.0 * (1 << 30));
  EXPECT_EQ(find_hardware("80GB").device.hbm_bytes, 80e9);
  EXPECT_THAT(usage_error([] { find_hardware("0GB"); }), HasSubstr("a memory such as 16GB"));
}

TEST(Hardware, AFileOfAUserIsRead) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "mine.toml";
  std::ofstream(path) << replaced(
      replaced(h100_toml(), "link_bytes_per_s = 450e9", "link_bytes_per_s = 123e9"), "name = \"h100-sxm\"",
      "name = \"mine\"");
  const Hardware hardware = find_hardware(path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(hardware.name, "mine");
  EXPECT_EQ(hardware.node.link_bytes_per_s, 123e9);
  EXPECT_THAT(usage_error([&] { find_hardware(path.string()); }), HasSubstr(path.string()));
}

TEST(Hardware, MistakesNameFileLineKeyAndTheFix) {
  const auto error = [](const std::string& from, const std::string& to) {
    return usage_error([&] { parse_hardware(replaced(h100_toml(), from, to), "my.toml"); });
  };
  EXPECT_THAT(error("link_bytes_per_s = 450e9", "link_byte_per_s = 450e9"),
              HasSubstr("node.link_byte_per_s: unknown key; did you mean node.link_bytes_per_s?"));
  EXPECT_THAT(error("link_bytes_per_s = 450e9", "link_byte_per_s = 450e9"),
              testing::StartsWith("my.toml:21: "));
  EXPECT_THAT(error("nics = 8", "nics = 8.5"),
              HasSubstr("network.nics must be a whole number in 1 .. 1024, got 8.5"));
  EXPECT_THAT(error("nics = 8", "nics = 0"), HasSubstr("got 0"));
  EXPECT_THAT(error("link_fraction = 0.80", "link_fraction = 1.5"), HasSubstr("at most 1, got 1.5"));
  EXPECT_THAT(
      error("nic_bytes_per_s = 50e9", "nic_bytes_per_s = \"50 GB/s\""),
      HasSubstr("network.nic_bytes_per_s must be a number greater than 0, at most 1e24, got \"50 GB/s\""));
  EXPECT_THAT(error("topology = \"switch\"", "topology = \"torus\""),
              HasSubstr("node.topology must be \"switch\" or \"ring\", got \"torus\""));
  EXPECT_THAT(error("[3.4e-6, 1.9e-6, 0.6e-6]", "[3.4e-6]"), HasSubstr("three numbers of seconds"));
  EXPECT_THAT(error("nics = 8", "#"), HasSubstr("my.toml: network.nics is missing"));
  EXPECT_THAT(error("name = \"h100-sxm\"", ""), HasSubstr("name is missing"));
  EXPECT_THAT(error("name = \"h100-sxm\"", "name = 5"), HasSubstr("my.toml:2: name must be a text, got 5"));
  EXPECT_THAT(error("[network]", "[netwrok]\n[network]"),
              HasSubstr("my.toml:26: [netwrok]: unknown section; did you mean network?"));
  EXPECT_THAT(error("nics = 8", "nics = = 8"), HasSubstr("not TOML"));
  EXPECT_THAT(
      error("[network]", "[netwrok]"),
      HasSubstr("my.toml:28: netwrok.nic_bytes_per_s: unknown key; did you mean network.nic_bytes_per_s?"));
}

}  // namespace
}  // namespace ingot
