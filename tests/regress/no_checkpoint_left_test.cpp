// Seen: with EIO in the only checkpoint, a resume ended with exit code 2, as if the command were wrong.
// Wanted: 3, as for other input that is damaged or cannot be read; 2 only if there is no checkpoint at all.
#include "tests/regress/attack_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NoCheckpointLeft : public AttackTest {};

TEST_F(NoCheckpointLeft, DamagedCheckpointsAreADataError) {
  make_run("--set checkpoint.every=2");
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

// Seen: a folder that could not be listed ended a resume with exit code 1 and the words of the C++ library.
// Wanted: the folder is named, and an older checkpoint is taken if there is one.
TEST_F(NoCheckpointLeft, AFolderThatCannotBeListedIsNamed) {
  const std::string user =  // root without the right to read every folder
      "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search ";
  if (bash("mkdir closed; chmod 311 closed; " + user + "true && ! " + user + "ls closed").exit_code != 0)
    GTEST_SKIP() << "SKIPPED LOUDLY: no folder can be closed to this user";
  make_run("--set checkpoint.every=2 --set train.stop_at=4 --set train.steps=8");
  const Outcome all = bash("chmod 311 run/checkpoints; " + user + "$ingot train --resume --out run");
  EXPECT_EQ(all.exit_code, 3) << all.output;
  EXPECT_THAT(all.output, HasSubstr("run/checkpoints: the folder cannot be read: Permission denied"));
  const Outcome newest = bash("chmod 755 run/checkpoints; chmod 311 run/checkpoints/step-000000004; " + user +
                              "$ingot train --resume --out run");
  EXPECT_EQ(newest.exit_code, 0) << newest.output;
  EXPECT_THAT(newest.output,
              AllOf(HasSubstr("step-000000004: the folder cannot be read"), HasSubstr("step-000000002")));
}

}  // namespace
}  // namespace ingot
