// Runs on a simulated CUDA device. Runs on the CPU can continue from their
// checkpoints, and the other way round.
#include <gmock/gmock.h>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/parallel/parallelize.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

class SimulatedRun : public TrainingTest {
 protected:
  RunConfig on(Device device, int64_t stop_at) const {
    RunConfig c = config(DType::f32);
    c.model.context = 8;
    c.model.width = 16;
    c.model.heads = 2;
    c.model.kv_heads = 0;
    c.data.tokenizer = "char";
    c.train.batch_size = 2;
    c.train.steps = 12;
    c.train.stop_at = stop_at;
    c.train.stats_every = 5;
    c.eval.every = 4;
    c.eval.max_tokens = 64;
    c.checkpoint.every = 4;
    c.checkpoint.keep = 8;
    c.sample.count = 1;
    c.sample.tokens = 8;
    c.train.device = device;
    return c;
  }
  double final_loss(const RunConfig& c, const std::filesystem::path& out, bool is_resume) {
    return train(c, out, is_resume).final_eval.loss;
  }
};

// The run goes from the CPU to the device and back; the reference stays on the CPU.
TEST_F(SimulatedRun, CheckpointsLoadOnEitherDevice) {
  const double want = final_loss(on(Device::kCpu, 0), folder / "cpu", false);
  final_loss(on(Device::kCpu, 4), folder / "both", false);
  final_loss(on(Device::kCuda, 8), folder / "both", true);
  const double got = final_loss(on(Device::kCpu, 0), folder / "both", true);
  EXPECT_NEAR(got, want, 1e-4 * want);
  EXPECT_THAT(said, ::testing::HasSubstr("--- sample 1 of 1"));
}

// A checkpoint that a device loads and saves again has the same bytes.
TEST_F(SimulatedRun, SavesTheBytesThatItLoaded) {
  final_loss(on(Device::kCpu, 4), folder / "cpu", false);
  const std::filesystem::path path = folder / "cpu/checkpoints/step-000000004";
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(path / "tokenizer.json");
  RunConfig c = on(Device::kCuda, 0);
  c.model.vocab = tokenizer->vocab_size();
  Trainer trainer(c, parallelize(c));
  const TrainerState state = load_checkpoint(path, trainer);
  CheckpointStore store(folder / "again");
  const std::filesystem::path again =
      save_checkpoint(&store, trainer, *tokenizer, read_file(path / "config.toml"), state);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "trainer.json", "config.json"})
    EXPECT_TRUE(read_file(path / name) == read_file(again / name)) << name;
}

}  // namespace
}  // namespace ingot
