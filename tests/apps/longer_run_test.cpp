// Seen: a finished run with a cosine schedule was made longer. It continued with 6 times its learning rate,
// and no message reported this. Wanted: a resumed run prints both rates, warns of a jump, and names the
// optimizer.lr with which the rate continues without a jump.
#include <regex>

#include "tests/regress/attack_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class LongerRun : public AttackTest {};

TEST_F(LongerRun, AJumpOfTheRateIsSaidAndCanBeAvoided) {
  const std::string steps = "--set train.steps=20 --set checkpoint.every=20 ";
  ASSERT_EQ(bash("$ingot " + train("run", steps) + "; cp -r run second").exit_code, 0);
  const Outcome jump = bash("$ingot train --resume --out run --set train.steps=40");
  EXPECT_THAT(jump.output,
              HasSubstr("warning: learning rate: 0.000318 at step 20, 0.0017 at step 21, because"));
  std::smatch advice;
  ASSERT_TRUE(std::regex_search(jump.output, advice, std::regex("--set optimizer.lr=[0-9.e-]+")))
      << jump.output;
  const Outcome smooth = bash("$ingot train --resume --out second --set train.steps=40 " + advice.str());
  EXPECT_THAT(smooth.output, AllOf(HasSubstr("\nlearning rate: 0.000318 at step 20, 0.000318 at step 21\n"),
                                   Not(HasSubstr("warning"))));
  EXPECT_THAT(bash("grep '\"step\":21,\"tokens\"' second/metrics.jsonl").output,
              HasSubstr("\"lr\":0.000318"));
}

TEST_F(LongerRun, ARunThatGoesOnAsPlannedIsNoJump) {
  const std::string stop = "--set train.steps=40 --set schedule.warmup_steps=10 --set train.stop_at=1 ";
  ASSERT_EQ(bash("$ingot " + train("run", stop)).exit_code, 0);
  const Outcome warming = bash("$ingot train --resume --out run --set train.stop_at=20");
  EXPECT_THAT(warming.output, AllOf(HasSubstr("\nlearning rate: 0.000273 at step 1, 0.000545 at step 2\n"),
                                    Not(HasSubstr("warning"))));
  const Outcome constant =
      bash("$ingot " + train("flat", "--set schedule.kind=constant --set checkpoint.every=4") +
           "\n$ingot train --resume --out flat --set train.steps=20 --set schedule.kind=wsd");
  EXPECT_THAT(constant.output, AllOf(HasSubstr("\nlearning rate: 0.003 at step 4, 0.003 at step 5\n"),
                                     Not(HasSubstr("warning"))));
}

}  // namespace
}  // namespace ingot
