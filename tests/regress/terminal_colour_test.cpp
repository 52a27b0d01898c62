// Seen: nothing was coloured, so warnings and errors were lost among the other lines. Wanted: colours
// appear only on a terminal, unless NO_COLOR or FORCE_COLOR says otherwise, and never in the run's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/launch_fixture.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

class TerminalColour : public LaunchTest {
 protected:
  void SetUp() override {}
  // Returns the output of the program under these environment variables.
  std::string coloured_output(const std::string& variables, const std::string& arguments) const {
    return bash("unset NO_COLOR FORCE_COLOR; export TERM=xterm\n" + variables + " $program " + arguments)
        .output;
  }
};

TEST_F(TerminalColour, ErrorsAreRed) {
  EXPECT_THAT(coloured_output("FORCE_COLOR=1", "train no-such-preset"), HasSubstr("\x1b[31mingot:\x1b[0m "));
  for (const char* variables : {"", "FORCE_COLOR=1 NO_COLOR=1", "NO_COLOR=1", "FORCE_COLOR=0"})
    EXPECT_EQ(coloured_output(variables, "train no-such-preset").find('\x1b'), std::string::npos)
        << variables;
}

TEST_F(TerminalColour, NeverAppearsInTheLog) {
  const std::string arguments = train("run", "--set train.steps=2 --set schedule.warmup_steps=1");
  EXPECT_THAT(coloured_output("FORCE_COLOR=1", arguments), HasSubstr("\x1b[32mbest\x1b[0m"));
  const std::string log = read_file(folder_ / "run/train.log");
  EXPECT_THAT(log, HasSubstr("| best\n"));
  EXPECT_EQ(log.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace ingot
