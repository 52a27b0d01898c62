// Found by fuzzing: for a number beyond the range of a double, parse_hf_config let an exception of the
// JSON library escape.
#include <gtest/gtest.h>

#include "ingot/core/error.h"
#include "ingot/formats/hf_config.h"

namespace ingot {
namespace {

TEST(HfConfigNumberOverflow, IsADataError) {
  for (const char* text : {"3450E590", "{\"vocab_size\": 1e999}"}) try {
      parse_hf_config(text, "config.json");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << text;
    }
}

}  // namespace
}  // namespace ingot
