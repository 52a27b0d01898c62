// Seen: a NaN in an embedding row that no text uses survived a resume and was saved as "completed";
// a learning rate of 1e10 with checkpoint.every = 1 left a checkpoint whose loss is NaN, and older
// good ones had been removed for it. Wanted: no value that is not finite is ever committed, and no
// run resumes from one.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/formats/manifest.h"
#include "ingot/formats/safetensors.h"
#include "ingot/optim/rules/adamw.h"
#include "ingot/parallel/parallelize.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class UnhealthyCheckpoint : public TrainingTest {
 protected:
  RunConfig unhealthy_config() const {
    RunConfig c = config(DType::f32);
    c.data.tokenizer = "byte";
    c.model.is_tied = false;
    c.eval.every = 0;
    c.train.steps = 6;
    c.checkpoint.every = 2;
    c.checkpoint.keep = 5;
    return c;
  }
  // Imitates a checkpoint of an older Ingot: a tensor's element becomes NaN, and the manifest matches it.
  static void plant_nan(const std::filesystem::path& checkpoint, const std::string& tensor, size_t element,
                        bool keeps_flag) {
    const std::filesystem::path path = checkpoint / "model.safetensors";
    std::string bytes = read_file(path);
    {
      const SafetensorsFile file(path);
      const auto* begin = file.tensors().front().bytes.data();  // the data follows the header
      size_t data_bytes = 0;
      for (const SafetensorsEntry& entry : file.tensors()) data_bytes += entry.bytes.size();
      const auto at = static_cast<size_t>(file.get(tensor).bytes.data() - begin) + bytes.size() - data_bytes;
      const float nan = std::nanf("");
      std::memcpy(bytes.data() + at + element * sizeof nan, &nan, sizeof nan);
    }
    write_file(path, bytes);
    Manifest manifest = read_manifest(checkpoint);
    if (!keeps_flag) manifest.metadata.erase(std::string(kFiniteFlag));
    std::filesystem::remove(checkpoint / kManifestName);
    write_manifest(checkpoint, manifest.metadata);
  }
  static TrainerState state_at(int64_t step) {
    TrainerState state;
    state.step = step;
    return state;
  }
  static bool is_healthy(const std::filesystem::path& checkpoint) {
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
      const SafetensorsFile file(checkpoint / name);
      for (const SafetensorsEntry& entry : file.tensors())
        for (size_t i = 0; entry.dtype == DType::f32 && i < entry.bytes.size(); i += sizeof(float)) {
          float x = 0;
          std::memcpy(&x, entry.bytes.data() + i, sizeof x);
          if (!std::isfinite(x)) return false;
        }
    }
    return true;
  }
};

TEST_F(UnhealthyCheckpoint, AStateThatIsNotFiniteIsNeverCommitted) {
  RunConfig c = unhealthy_config();
  c.optimizer.ema = 0.9;
  c.model.vocab = 256;
  Trainer trainer(c, parallelize(c));
  trainer.initialise();
  CheckpointStore store(folder / "checkpoints");
  const auto tokenizer = make_byte_tokenizer();
  save_checkpoint(&store, trainer, *tokenizer, "", state_at(1));
  float& weight = trainer.params().master(0).as<float>()[255 * c.model.width + 3];  // no text has byte 255
  std::vector<std::pair<float*, std::string>> places = {
      {&weight, "model.embed_tokens.weight, element 8163 is nan"}};
  for (const Optimizer::State& state : trainer.state().optimizer.states())
    if (state.name.ends_with("embedding.weight"))
      places.emplace_back(state.tensor.as<float>() + 7, state.name + ", element 7 is nan");
  ASSERT_EQ(places.size(), 4u) << "weights, two moments, average";
  for (const auto& [number, text] : places) {
    const float before = std::exchange(*number, std::nanf(""));
    EXPECT_THAT([&] { save_checkpoint(&store, trainer, *tokenizer, "", state_at(2)); },
                testing::Throws<Error>(AllOf(testing::Property(&Error::kind, ErrorKind::kNumerics),
                                             testing::Property(&Error::what, HasSubstr(text)))));
    *number = before;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints"))
      EXPECT_EQ(entry.path().filename(), "step-000000001") << "nothing of it stays";
  }
  TrainerState state = state_at(2);
  state.recent_losses = {1, std::nan("")};
  EXPECT_THROW(save_checkpoint(&store, trainer, *tokenizer, "", state), Error);
  save_checkpoint(&store, trainer, *tokenizer, "", state_at(2));
}

TEST_F(UnhealthyCheckpoint, ARunThatDivergesEndsWithTheNewestHealthyOneNamed) {
  RunConfig c = unhealthy_config();
  c.train.steps = 60;
  c.checkpoint.every = 1;
  c.checkpoint.keep = 2;
  c.schedule.warmup_steps = 0;
  c.optimizer.lr = 1e37;  // gradients stay finite, but weights leave the range of f32 within a few updates
  c.optimizer.rule.options.set(&AdamW::Options::weight_decay, 100);
  EXPECT_NE(error_of([&] { train(c, folder / "run"); }, ErrorKind::kNumerics), "no error");
  for (const Checkpoint& checkpoint : list_checkpoints(folder / "run/checkpoints"))
    EXPECT_TRUE(is_healthy(checkpoint.path)) << checkpoint.path;
}

// Weights of 1e9 are finite, but the loss that they give is not. So the previous checkpoint is kept until
// a step has shown that the newer one is usable.
TEST_F(UnhealthyCheckpoint, TheOneBeforeStaysUntilTheNewestHasBeenVerified) {
  RunConfig c = unhealthy_config();
  c.train.stop_at = 2;
  const std::filesystem::path run = folder / "run";
  train(c, run);
  c.train.stop_at = 0;
  c.train.steps = 60;
  c.checkpoint.every = 1;
  c.checkpoint.keep = 1;
  c.optimizer.lr = 1e10;
  EXPECT_THAT([&] { train(c, run, true); },
              testing::Throws<Error>(testing::Property(&Error::kind, ErrorKind::kNumerics)));
  const std::vector<Checkpoint> all = list_checkpoints(run / "checkpoints");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all.back().step, all.front().step - 1);

  // A healthy run keeps only as many checkpoints as checkpoint.keep says.
  RunConfig calm = unhealthy_config();
  calm.checkpoint.every = 1;
  calm.checkpoint.keep = 1;
  train(calm, folder / "calm");
  EXPECT_EQ(list_checkpoints(folder / "calm/checkpoints").size(), 1u);
}

TEST_F(UnhealthyCheckpoint, ANonFiniteValidationLossEndsTheRun) {
  RunConfig c = unhealthy_config();
  c.train.steps = 1;
  c.schedule.warmup_steps = 0;
  c.optimizer.lr = 1e10;
  EXPECT_THAT(
      [&] { train(c, folder / "run"); },
      testing::Throws<Error>(AllOf(testing::Property(&Error::kind, ErrorKind::kNumerics),
                                   testing::Property(&Error::what, HasSubstr("its validation loss is ")))));
  c.train.steps = 2;  // the state is evaluated before it is saved
  c.eval.every = c.checkpoint.every = 1;
  EXPECT_THAT([&] { train(c, folder / "early"); },
              testing::ThrowsMessage<Error>(HasSubstr("it was not saved")));
  EXPECT_TRUE(list_checkpoints(folder / "early/checkpoints").empty());
}

TEST_F(UnhealthyCheckpoint, AResumeGoesBackToTheNewestHealthyOne) {
  RunConfig c = unhealthy_config();
  c.train.stop_at = 4;
  const std::filesystem::path run = folder / "run";
  for (const bool keeps_flag : {true, false}) {
    std::filesystem::remove_all(run);
    const TrainOutcome first = train(c, run);
    plant_nan(first.checkpoint, "model.embed_tokens.weight", 255 * 32 + 3, keeps_flag);
    RunConfig rest = c;
    rest.train.stop_at = 0;
    said.clear();
    const TrainOutcome outcome = train(rest, run, true);
    EXPECT_EQ(outcome.steps, 6);
    EXPECT_THAT(said, AllOf(HasSubstr("model.embed_tokens.weight, element 8163 is nan; passed over"),
                            HasSubstr("step-000000002 at step 2")));
    EXPECT_TRUE(is_healthy(outcome.checkpoint));
    EXPECT_EQ(std::get<int64_t>(read_manifest(outcome.checkpoint).metadata.at("finite")), 1);
  }
}

TEST_F(UnhealthyCheckpoint, WithoutAHealthyOneAResumeIsRefused) {
  RunConfig c = unhealthy_config();
  c.train.stop_at = 2;
  const TrainOutcome first = train(c, folder / "run");
  plant_nan(first.checkpoint, "model.embed_tokens.weight", 0, false);
  EXPECT_THAT([&] { train(c, folder / "run", true); },
              testing::ThrowsMessage<Error>(HasSubstr("there is no healthy checkpoint to resume")));
}

}  // namespace
}  // namespace ingot
