// Seen: a file of a gigabyte named .toml was parsed for a minute and took 3.9 GB before it was refused.
// Wanted: its size is refused, with where a text belongs.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/plan/hardware.h"

namespace ingot {
namespace {

template <typename F>
std::string huge_file_refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(HugeConfiguration, IsRefusedByItsSize) {
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("{}-book.toml", getpid())).string();
  write_file(file, "");
  std::filesystem::resize_file(file, uintmax_t{1} << 30);
  const auto is_named = ::testing::HasSubstr(
      "-book.toml: has 1024 MB, and a TOML file at most 16; text to train on stands after --data");
  EXPECT_THAT(huge_file_refusal([&] { ConfigBuilder().add_source(file); }), is_named);
  EXPECT_THAT(huge_file_refusal([&] { find_hardware(file); }), is_named);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace ingot
