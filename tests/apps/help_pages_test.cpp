// The completion scripts and manual pages that the program writes about itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/regress/attack_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class HelpPages : public AttackTest {
 protected:
  // Returns what bash offers for the last word of a line.
  std::string completed(const std::string& line) const {
    return bash("source <($ingot completion bash)\ncompopt() { :; }\nCOMP_WORDS=(" + line +
                ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_ingot\necho \"${COMPREPLY[*]}\"")
        .output;
  }
};

TEST_F(HelpPages, BashCompletesCommandsOptionsPresetsAndKeys) {
  EXPECT_EQ(completed("ingot tr"), "train\n");
  EXPECT_EQ(completed("ingot data pre"), "prepare\n");
  EXPECT_EQ(completed("ingot data prepare --vocab"), "--vocab-size\n");
  EXPECT_EQ(completed("ingot train shakespeare-char-m"), "shakespeare-char-muon\n");
  EXPECT_EQ(completed("ingot train tiny-llama --set train.st"),
            "train.steps= train.stop_at= train.stats_every=\n");
  EXPECT_EQ(completed("ingot train --set optimizer.lr=1e-3 --resume-a"), "--resume-anyway\n");
  EXPECT_EQ(bash("mkdir folder; touch file").exit_code, 0);
  EXPECT_EQ(completed("ingot train --out f"), "folder\n");
}

TEST_F(HelpPages, TheScriptsAreValidInTheirShells) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Outcome script = bash("$ingot completion " + shell + " > script && (! command -v " + shell +
                                " > found || " + shell + " -n script)");
    EXPECT_EQ(script.exit_code, 0) << shell << ": " << script.output;
  }
  const Outcome unknown = bash("$ingot completion tcsh");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("tcsh: unknown shell; the shells are bash, zsh and fish"));
}

TEST_F(HelpPages, EveryCommandHasAManualPageWithItsOptions) {
  const Outcome pages =
      bash("$ingot man --out pages && cd pages && ls && cat ingot-data-prepare.1 ingot-config.5");
  EXPECT_EQ(pages.exit_code, 0) << pages.output;
  EXPECT_THAT(pages.output, AllOf(HasSubstr("ingot.1\n"), HasSubstr("ingot-train.1\n"),
                                  HasSubstr("ingot-bench-head.1\n"), HasSubstr("\\fB\\-\\-vocab\\-size\\fR"),
                                  HasSubstr("\\fBtrain.steps\\fR"), HasSubstr("\\fBtiny\\-llama\\fR")));
  const Outcome shown = bash(
      "command -v groff > found || exit 9; for page in pages/*; do groff -ww -man -Tutf8 $page > text; done");
  if (shown.exit_code == 9) GTEST_SKIP() << "SKIPPED: groff is not here, so the pages' syntax is not checked";
  EXPECT_EQ(shown.output, "");
}

}  // namespace
}  // namespace ingot
