// Seen: with EIO in the only checkpoint, a resume ended with exit code 2, as if the command were wrong. Wanted: 3, as for
// other input that is damaged or cannot be read; 2 only if there is no checkpoint at all.
#include "tests/regress/attack_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NoCheckpointLeft : public AttackTest {};

TEST_F(NoCheckpointLeft, DamagedCheckpointsAreADataError) {
  ASSERT_EQ(bash("$ingot " + train("run", "--set checkpoint.every=2")).exit_code, 0);
  const Outcome damaged = bash(
      "for f in run/checkpoints/step-*/model.safetensors; do truncate -s -1 $f; done\n"
      "$ingot train --resume --out run");
  EXPECT_EQ(damaged.exit_code, 3) << damaged.output;
  EXPECT_THAT(damaged.output, AllOf(HasSubstr("step-000000002: model.safetensors"),
                                    HasSubstr("step-000000004: model.safetensors"),
                                    HasSubstr("there is no healthy checkpoint to resume")));
  const Outcome none = bash("rm -r run/checkpoints/step-*; $ingot train --resume --out run");
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_THAT(none.output, HasSubstr("there is no healthy checkpoint to resume"));
}

}  // namespace
}  // namespace ingot
