// Seen: with checkpoint.at_start, the disk refused the first checkpoint and the run went on. Its machine
// failed before the next one, and the supervisor could not start it again: the folder held steps, but no
// checkpoint. Wanted: the first checkpoint is tried again before the first step is made.
#include <gmock/gmock.h>

#include "ingot/checkpoint/checkpoint_store.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class FirstCheckpointFails : public TrainingTest {};

TEST_F(FirstCheckpointFails, NoStepIsMadeWithoutIt) {
  RunConfig c = config(DType::f32);
  c.data.tokenizer = "byte";
  c.train.steps = 3;
  c.checkpoint.is_made_at_start = true;
  const fs::path run = folder / "run", checkpoints = run / "checkpoints";
  bool is_blocked = false;
  size_t at_first_step = 0;
  on_line = [&](std::string_view line) {
    if (!is_blocked && fs::exists(run)) {
      fs::remove_all(checkpoints);
      write_file(checkpoints, "a file where the folder was");
      is_blocked = true;
    } else if (line.find("could not be saved") != line.npos) {
      fs::remove(checkpoints);
      make_folders(checkpoints);
    } else if (line.find("step 1/3") != line.npos) {
      at_first_step = list_checkpoints(checkpoints).size();
    }
  };
  EXPECT_EQ(train(c, run).status, TrainOutcome::Status::kCompleted);
  EXPECT_THAT(said, HasSubstr("step 0: the checkpoint could not be saved: "));
  EXPECT_THAT(said, Not(HasSubstr("the run goes on")));
  EXPECT_EQ(at_first_step, 1u);
}

}  // namespace
}  // namespace ingot
