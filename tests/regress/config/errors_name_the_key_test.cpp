// Seen: `--set train.init_from=true;` was answered with "true;: is no checkpoint", which names no key.
// Wanted: whatever is wrong with the value of a key, the error names the key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ingot/config/config_keys.h"
#include "ingot/config/config_toml.h"
#include "ingot/run/start_model.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

// Returns the error of a configuration with the assignment, or "no error" if it is accepted.
std::string error_of_assignment(const std::string& assignment) {
  return error_of([&] {
    ConfigBuilder builder;
    builder.add_source("tiny-llama");
    builder.add_override(assignment);
    complete_from_start(builder);
    builder.build();
  });
}

TEST(ErrorsNameTheKey, ForEveryKeyAndManyValues) {
  int refused = 0;
  for (const ConfigKey& key : config_keys())
    for (const char* value : {"", "abc", "-1", "0", "1e999", "nan", "0x10", "99999999999999999999", "[1,2]",
                              "true;", "\x1b[31m", "\xff"}) {
      const std::string error = error_of_assignment(key.name + "=" + value);
      if (error == "no error") continue;
      ++refused;
      EXPECT_THAT(error, testing::HasSubstr(key.name)) << value;
    }
  EXPECT_GT(refused, static_cast<int>(config_keys().size()) * 6);
}

}  // namespace
}  // namespace ingot
