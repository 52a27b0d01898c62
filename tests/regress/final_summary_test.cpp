// Seen: the last lines of the demo did not say whether gzip or the model compresses better, and the
// commands that they named did not work as printed ("ingot" is not on PATH after ./demo, and the prompt
// was "..."). Wanted: the demo states the winner in one sentence and prints a command that can be pasted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingot/run/record/final_summary.h"

namespace ingot {
namespace {
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(FinalSummary, NameTheBaselinesThatTheModelBeats) {
  const std::vector<Yardstick> both = {{"gzip -9", 2.377}, {"xz -9e", 2.062}};
  EXPECT_EQ(compression_verdict(1.6449, both),
            "the model needs 1.645 bits per byte of text that it has not seen; gzip -9 needs 2.377 and xz "
            "-9e 2.062: "
            "it beats both");
  EXPECT_THAT(compression_verdict(2.2, both), EndsWith(": it beats gzip -9 only"));
  EXPECT_THAT(compression_verdict(3, both), EndsWith(": it beats neither yet"));
  EXPECT_THAT(compression_verdict(3, std::span(both).first(1)), EndsWith(": it does not beat that yet"));
  EXPECT_EQ(compression_verdict(0, both), "");
  EXPECT_EQ(compression_verdict(1, {}), "");
}

TEST(FinalSummary, NameACommandThatAShellAccepts) {
  RunConfig config;
  config.sample.prompts = {"two\nlines", "It's $5"};
  EXPECT_THAT(next_commands("runs/a b", config).front(),
              HasSubstr(R"(generate "runs/a b" --prompt 'It'\''s $5')"));
  config.sample.prompts = {"In the beginning"};
  EXPECT_THAT(next_commands("runs/demo-1", config).front(),
              HasSubstr("generate runs/demo-1 --prompt \"In the beginning\""));
  EXPECT_EQ(shell_word(""), "\"\"");
  EXPECT_EQ(shell_word("a/b-c.d"), "a/b-c.d");
}

}  // namespace
}  // namespace ingot
