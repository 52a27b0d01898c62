// Tests of checkpoints that are written concurrently with training (checkpoint.async).
#include <gmock/gmock.h>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/checkpoint/checkpoint_writer.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/metrics_log.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"
#include "tests/run/watched_run.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class AsyncSave : public TrainingTest {
 protected:
  RunConfig saving(DType compute, int64_t every) const {
    RunConfig c = config(compute);
    c.data.tokenizer = "byte";
    c.train.steps = 12;
    c.checkpoint.every = every;
    c.checkpoint.keep = 100;
    return c;
  }
  // Checks that every checkpoint of a run that saves concurrently with training equals, file by file, that of
  // a run that waits.
  void expect_equal_checkpoints(RunConfig c, const std::string& name) {
    train(c, folder / (name + "-beside"));
    c.checkpoint.is_async = false;
    train(c, folder / (name + "-waiting"));
    const std::vector<Checkpoint> beside = list_checkpoints(folder / (name + "-beside/checkpoints"));
    const std::vector<Checkpoint> waiting = list_checkpoints(folder / (name + "-waiting/checkpoints"));
    ASSERT_EQ(beside.size(), static_cast<size_t>(c.train.steps / c.checkpoint.every)) << name;
    ASSERT_EQ(waiting.size(), beside.size()) << name;
    for (size_t i = 0; i < beside.size(); ++i) {
      SCOPED_TRACE(name + " " + beside[i].path.filename().string());
      expect_equal_files(beside[i].path, waiting[i].path);
    }
  }
};

TEST_F(AsyncSave, TheCheckpointIsThatOfItsStepWhateverTrainingDoesMeanwhile) {
  expect_equal_checkpoints(saving(DType::f32, 3), "f32");
  RunConfig c = saving(DType::f32, 2);
  c.optimizer.ema = 0.9;
  c.eval.every = 1;  // evaluations exchange the weights for their averages
  expect_equal_checkpoints(c, "averages");
  c = saving(DType::bf16, 3);
  c.precision.master = Masters::kTail;
  expect_equal_checkpoints(c, "tails");
  c.precision.master = Masters::kNone;
  c.optimizer.rule.kind = "adamw8bit";
  expect_equal_checkpoints(c, "bf16-8bit");
  c = saving(DType::bf16, 3);
  c.precision.fp8 = {.recipe = Fp8Recipe::kDelayed, .amax_history = 4};
  expect_equal_checkpoints(c, "fp8");
}

TEST_F(AsyncSave, ASaveWaitsForTheOneBeforeIt) {
  expect_equal_checkpoints(saving(DType::f32, 1), "every");
  RunConfig c = saving(DType::f32, 0);
  c.train.steps = 100;
  Mesh mesh = Mesh::alone();
  WatchedRun run(c, folder / "run", mesh);
  run.saver.settle();
  run.go_to(4);
  EXPECT_EQ(run.saver.saved().step, 0);
  run.saver.save();
  // Only the training thread commits, between two steps.
  EXPECT_EQ(run.saver.saved().step, 0) << "the save has waited";
  EXPECT_TRUE(run.saver.is_writing_this_step());
  run.saver.save();
  EXPECT_EQ(run.saver.saved().step, 4);
  EXPECT_FALSE(run.saver.is_writing_this_step());
  EXPECT_EQ(list_checkpoints(folder / "run/checkpoints").size(), 2u);
}

// The trainer's memory changes while the copy is written.
TEST_F(AsyncSave, TheCopyIsWrittenAndNotTheTrainersMemory) {
  RunConfig c = saving(DType::f32, 0);
  c.data.tokenizer = "byte";
  c.model.vocab = 256;
  c.train.steps = 100;
  Mesh mesh = Mesh::alone();
  WatchedRun run(c, folder / "run", mesh);
  run.go_to(2);
  CheckpointStore store(folder / "checkpoints");
  CheckpointWriter writer(&store, run.run.trainer);
  TrainerState state;
  const auto tokenizer = make_byte_tokenizer();
  state.step = 1;
  writer.begin(*tokenizer, "", state, nullptr);
  const fs::path waiting = writer.finish();
  Arena room("copy", CheckpointWriter::copy_bytes(run.run.trainer));
  state.step = 2;
  writer.begin(*tokenizer, "", state, &room);
  writer.wait_until_copied();
  for (const Tensor& t : run.memory()) std::memset(t.data, 0x40, t.bytes());
  EXPECT_TRUE(writer.is_active());
  const fs::path beside = writer.finish();
  EXPECT_FALSE(writer.is_active());
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(read_file(waiting / file) == read_file(beside / file)) << file;
}

// The bit is flipped between the copy and the end of writing. A busy machine may write everything before
// that, so the test may need more than one attempt.
TEST_F(AsyncSave, ACopyWhoseBitsChangeIsNotCommitted) {
  RunConfig c = saving(DType::f32, 0);
  c.model.width = 128;
  c.train.steps = 100;
  Mesh mesh = Mesh::alone();
  WatchedRun run(c, folder / "run", mesh);
  CheckpointStore store(folder / "checkpoints");
  CheckpointWriter writer(&store, run.run.trainer);
  Arena room("copy", CheckpointWriter::copy_bytes(run.run.trainer));
  const auto tokenizer = make_byte_tokenizer();
  std::string error = "no error";
  for (int attempt = 0; attempt < 50 && error == "no error"; ++attempt) {
    writer.begin(*tokenizer, "", TrainerState{}, &room);
    writer.wait_until_copied();
    room.release_to(0);
    room.alloc(DType::u8, {1}).as<uint8_t>()[0] ^= 0x10;
    error = error_of([&] { fs::remove_all(writer.finish()); });
  }
  EXPECT_THAT(error, HasSubstr("changed in memory while the checkpoint was written"));
  EXPECT_TRUE(fs::is_empty(folder / "checkpoints"));
  writer.begin(*tokenizer, "", TrainerState{}, &room);
  EXPECT_NO_THROW(writer.finish());
}

TEST_F(AsyncSave, AnAbandonedCheckpointLeavesNothing) {
  RunConfig c = saving(DType::f32, 0);
  c.train.steps = 100;
  Mesh mesh = Mesh::alone();
  WatchedRun run(c, folder / "run", mesh);
  CheckpointStore store(folder / "checkpoints");
  Arena room("copy", CheckpointWriter::copy_bytes(run.run.trainer));
  {
    CheckpointWriter writer(&store, run.run.trainer);
    writer.begin(*make_byte_tokenizer(), "", TrainerState{}, &room);
    writer.abandon();
    EXPECT_TRUE(fs::is_empty(folder / "checkpoints"));
    writer.begin(*make_byte_tokenizer(), "", TrainerState{}, &room);
  }
  EXPECT_TRUE(fs::is_empty(folder / "checkpoints"));
}

// A number that is not finite is found by the thread that writes, and the run ends at the next step.
TEST_F(AsyncSave, AStateThatIsNotFiniteEndsTheRun) {
  RunConfig c = saving(DType::f32, 5);
  c.train.steps = 100;
  Mesh mesh = Mesh::alone();
  WatchedRun run(c, folder / "run", mesh);
  run.saver.settle();
  run.go_to(4);
  run.run.trainer.state().optimizer.states()[1].tensor.as<float>()[3] =
      std::numeric_limits<float>::infinity();
  const auto save = [&] {
    run.saver.save();
    run.saver.settle();
  };
  EXPECT_THAT(save, testing::ThrowsMessage<Error>(testing::AllOf(
                        HasSubstr("step 4: the state of the run is broken: optimizer.safetensors: "),
                        HasSubstr("element 3 is inf"), HasSubstr("it was not saved"))));
  EXPECT_EQ(list_checkpoints(folder / "run/checkpoints").size(), 1u);
}

TEST_F(AsyncSave, ACheckpointOfACorruptStateIsGivenUp) {
  RunConfig c = saving(DType::f32, 5);
  c.guard.watches_memory = true;
  c.train.steps = 100;
  Mesh mesh = Mesh::alone();
  WatchedRun run(c, folder / "run", mesh);
  run.go_to(4);
  run.saver.settle();
  run.flip(7);  // after the comparison before the save, and before the copy
  run.saver.save();
  EXPECT_FALSE(run.step.make(false));
  EXPECT_THAT(run.said, HasSubstr("the checkpoint of step 4 is given up"));
  EXPECT_EQ(run.run.steps_done(), 0);
}

TEST_F(AsyncSave, TheTimeThatStepsWaitIsInTheLog) {
  RunConfig c = saving(DType::f32, 5);
  c.checkpoint.is_async = false;
  train(c, folder / "run");
  double save_ms = 0;
  for (const MetricsRow& row : read_metrics(folder / "run/metrics.jsonl"))
    if (*row.number("step") == 6) save_ms = row.number("save_ms").value_or(save_ms);
  EXPECT_GT(save_ms, 0);
}

}  // namespace
}  // namespace ingot
