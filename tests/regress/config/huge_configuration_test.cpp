// Seen: a file of a gigabyte named .toml was parsed for a minute and took 3.9 GB before it was refused.
// Wanted: its size is refused, with where a text belongs.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "ingot/config/config_toml.h"
#include "ingot/core/file.h"
#include "ingot/plan/hardware.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

TEST(HugeConfiguration, IsRefusedByItsSize) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "a-book.toml";
  write_file(file, "");
  std::filesystem::resize_file(file, uintmax_t{1} << 30);
  const auto is_named = ::testing::HasSubstr(
      "-book.toml: has 1024 MB, and a TOML file at most 16; text to train on stands after --data");
  EXPECT_THAT(usage_error([&] { ConfigBuilder().add_source(file); }), is_named);
  EXPECT_THAT(usage_error([&] { find_hardware(file); }), is_named);
}

}  // namespace
}  // namespace ingot
