// Seen: a resume silently accepted another seed, batch size, context or tokenizer, or changed validation
// text, although the run then continued with other text. Another width was refused only because of a
// tensor's shape. Wanted: every difference is listed, changes of the text must be accepted explicitly, and
// a key that cannot change is named in the refusal.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ingot/formats/manifest.h"
#include "ingot/optim/rules/adamw.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ResumeChanges : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    base = config(DType::f32);
    base.data.tokenizer = "byte";
    base.eval.every = 0;
    base.train.steps = 8;
    base.checkpoint.every = 0;
    RunConfig begun = base;
    begun.train.stop_at = 4;
    train(begun, run);
  }
  // Resumes with c, expects a kUsage error and returns its message.
  std::string resume_refusal(const RunConfig& c) {
    return usage_error([&] { train(c, run, true); });
  }
  RunConfig base;
  const fs::path run = folder / "run";
};

TEST_F(ResumeChanges, ChangesOfTheNextTextMustBeAccepted) {
  RunConfig c = base;
  c.train.seed = 7;
  c.train.batch_size = 4;
  c.model.context = 16;
  c.data.order = SampleOrder::kEpochs;
  c.optimizer.lr = 0.5;
  EXPECT_THAT(resume_refusal(c),
              AllOf(HasSubstr("train.seed 1337 -> 7"), HasSubstr("train.batch_size 3 -> 4"),
                    HasSubstr("model.context 24 -> 16"), HasSubstr("data.order \"random\" -> \"epochs\""),
                    HasSubstr("--resume-anyway"), Not(HasSubstr("optimizer.lr"))));
  said.clear();
  const TrainOutcome outcome = train(c, run, true, DataMismatch::kAccepted);
  EXPECT_EQ(outcome.steps, 8);
  EXPECT_THAT(said, AllOf(HasSubstr("changed since the checkpoint was saved:"), HasSubstr("1337 -> 7"),
                          HasSubstr("(other text comes next)"), HasSubstr("optimizer.lr")));
  // The accepted values are now the run's own.
  said.clear();
  c.train.steps = 9;
  EXPECT_EQ(train(c, run, true).steps, 9);
  EXPECT_THAT(said, AllOf(HasSubstr("train.steps              8 -> 9"), Not(HasSubstr("train.seed"))));
}

TEST_F(ResumeChanges, AnotherModelIsRefusedByItsKey) {
  RunConfig c = base;
  c.model.width = 48;
  c.model.layers = 3;
  const std::string error = resume_refusal(c);
  EXPECT_THAT(error, AllOf(HasSubstr("model.width 32 -> 48"), HasSubstr("model.layers 2 -> 3"),
                           Not(HasSubstr("tensor"))));
  EXPECT_THAT([&] { train(c, run, true, DataMismatch::kAccepted); },
              testing::ThrowsMessage<Error>(HasSubstr("model.width")))
      << "accepting other text does not change what a model is";
  c = base;
  c.optimizer.ema = 0.5;
  EXPECT_THAT(resume_refusal(c), HasSubstr("optimizer.ema 0.0 -> 0.5"));
  c = base;
  c.precision.fp8.recipe = Fp8Recipe::kDelayed;
  EXPECT_THAT(resume_refusal(c), HasSubstr("precision.fp8 \"none\" -> \"delayed\""));
}

TEST_F(ResumeChanges, OtherChangesAreListedAndMade) {
  RunConfig c = base;
  c.optimizer.lr = 0.002;
  c.optimizer.rule.options.set(&AdamW::Options::beta1, 0.8);
  c.train.batch_size = 2;
  c.train.grad_accum = 3;  // the same number of sequences per step
  c.checkpoint.every = 3;
  said.clear();
  EXPECT_EQ(train(c, run, true).steps, 8);
  EXPECT_THAT(said, AllOf(HasSubstr("optimizer.lr             0.001 -> 0.002"), HasSubstr("optimizer.beta1"),
                          HasSubstr("train.batch_size         3 -> 2"), HasSubstr("checkpoint.every"),
                          Not(HasSubstr("other text comes next"))));
}

TEST_F(ResumeChanges, NoChangeIsReportedWhereThereIsNone) {
  said.clear();
  EXPECT_EQ(train(base, run, true).steps, 8);
  EXPECT_THAT(said, AllOf(HasSubstr("resumed "), Not(HasSubstr("changed since"))));
}

TEST_F(ResumeChanges, TextThatChangedInItsFileIsNoticed) {
  write_file(folder / "val.txt", read_file(text).substr(0, 3000));
  RunConfig c = base;
  c.data.val = {(folder / "val.txt").string()};
  c.train.stop_at = 4;
  const fs::path other = folder / "other";
  train(c, other);
  c.train.stop_at = 0;
  write_file(folder / "val.txt", read_file(text).substr(500, 3000));
  EXPECT_THAT(
      [&] { train(c, other, true); },
      testing::ThrowsMessage<Error>(AllOf(HasSubstr("data.val tokens of hash "), Not(HasSubstr("data.train")),
                                          HasSubstr("--resume-anyway"))));
  // Another val_fraction of the same file moves the training and the validation split.
  RunConfig split = base;
  split.data.val_fraction = 0.2;
  EXPECT_THAT(resume_refusal(split),
              AllOf(HasSubstr("data.train tokens of hash"), HasSubstr("data.val tokens"),
                    HasSubstr("data.val_fraction 0.1 -> 0.2")));
  EXPECT_EQ(train(c, other, true, DataMismatch::kAccepted).steps, 8);
}

TEST_F(ResumeChanges, TheSameTextInAnotherPlaceIsTheSame) {
  fs::copy_file(text, folder / "copy.txt");
  RunConfig c = base;
  c.data.train = {(folder / "copy.txt").string()};
  said.clear();
  EXPECT_EQ(train(c, run, true).steps, 8);
  EXPECT_THAT(said, HasSubstr("copy.txt"));
}

TEST_F(ResumeChanges, AnotherTokenizerIsOtherText) {
  RunConfig c = base;
  c.data.tokenizer = "char";
  EXPECT_THAT(resume_refusal(c), HasSubstr("data.tokenizer \"byte\" -> \"char\""));
  EXPECT_EQ(train(c, run, true, DataMismatch::kAccepted).steps, 8);  // fits the vocabulary of 256
  RunConfig large = base;
  large.data.tokenizer = "bpe";
  large.data.tokenizer_vocab = 300;
  EXPECT_THAT(
      [&] { train(large, run, true, DataMismatch::kAccepted); },
      testing::ThrowsMessage<Error>(AllOf(HasSubstr("data.tokenizer has "), HasSubstr("model.vocab"))));
}

// Older checkpoints have no hash of the validation text.
TEST_F(ResumeChanges, AnOlderCheckpointIsAcceptedWithANote) {
  const fs::path checkpoint = run / "checkpoints/step-000000004";
  auto json = nlohmann::ordered_json::parse(read_file(checkpoint / "trainer.json"));
  ASSERT_EQ(json.erase("val_hash"), 1u);
  write_file(checkpoint / "trainer.json", json.dump(1) + "\n");
  const ManifestMetadata metadata = read_manifest(checkpoint).metadata;
  fs::remove(checkpoint / kManifestName);
  write_manifest(checkpoint, metadata);
  said.clear();
  EXPECT_EQ(train(base, run, true).steps, 8);
  EXPECT_THAT(said, HasSubstr("does not say what text it was evaluated on"));
}

}  // namespace
}  // namespace ingot
