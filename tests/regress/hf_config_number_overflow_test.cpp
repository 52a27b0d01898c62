// Found by fuzzing: for a number beyond the range of a double, parse_hf_config let an exception of the
// JSON library escape.
#include <gtest/gtest.h>

#include "ingot/formats/hf_config.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

TEST(HfConfigNumberOverflow, IsADataError) {
  for (const char* text : {"3450E590", "{\"vocab_size\": 1e999}"})
    EXPECT_NE(data_error([&] { parse_hf_config(text, "config.json"); }), "no error") << text;
}

}  // namespace
}  // namespace ingot
