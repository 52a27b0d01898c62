// Runs on pairs of answers: what they print, how they resume, and what they refuse.
#include <gmock/gmock.h>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "tests/run/chat_tokenizer.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DpoRun : public TrainingTest {
 protected:
  fs::path pairs = folder / "pairs.jsonl";

  void SetUp() override {
    TrainingTest::SetUp();
    write_chat_tokenizer(folder / "model");
    std::string lines;
    const char* words[] = {"the cat", "a dog", "sat", "ran", "on a mat"};
    for (size_t i = 0; i < 40; ++i)
      lines +=
          fmt::format(R"({{"prompt": [{{"role": "user", "content": "{} {}?"}}], )"
                      R"("chosen": [{{"role": "assistant", "content": "{}."}}], )"
                      R"("rejected": [{{"role": "assistant", "content": "{} {}"}}]}})"
                      "\n",
                      words[i % 5], words[i / 5 % 5], words[i % 3], words[(i + i / 7) % 5], words[i % 4]);
    write_file(pairs, lines);
  }

  RunConfig dpo_config() const {
    RunConfig c = config(DType::f32);
    c.model.context = 96;
    c.model.dropout = 0;
    c.data.train = {pairs.string()};
    c.data.tokenizer = (folder / "model").string();
    c.data.has_document_mask = true;
    c.data.order = SampleOrder::kEpochs;
    c.head.dpo_beta = 0.5;
    c.train.steps = 9;
    c.train.batch_size = 2;
    c.train.grad_accum = 1;
    c.eval.every = 3;
    c.checkpoint.every = 3;
    return c;
  }

  int refusals_ = 0;
  std::string refusal_of_run(const RunConfig& c, const fs::path& out = {}, bool is_resume = false) {
    try {
      train(c, out.empty() ? folder / fmt::format("refused-{}", refusals_++) : out, is_resume);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(DpoRun, ResumesWithTheReferenceThatItBeganWith) {
  RunConfig c = dpo_config();
  const TrainOutcome whole = train(c, folder / "whole");
  EXPECT_THAT(said, HasSubstr("36 pairs in "));
  c.train.stop_at = 4;
  train(c, folder / "parts");
  c.train.stop_at = 0;
  const TrainOutcome parts = train(c, folder / "parts", true);
  const auto want = steps_of(folder / "whole"), got = steps_of(folder / "parts");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].number("loss"), want[i].number("loss")) << i;
    EXPECT_EQ(got[i].number("rewards/margins"), want[i].number("rewards/margins")) << i;
  }
  EXPECT_NEAR(want[0].number("loss").value(), std::log(2), 1e-5);
  EXPECT_LT(want.back().number("loss").value(), 0.6);
  EXPECT_GT(want.back().number("rewards/margins").value(), 0.2);
  EXPECT_GT(want.back().number("rewards/accuracies").value(), 0.6);
  EXPECT_LT(whole.final_eval.loss, 0.65) << "of the validation pairs";
  EXPECT_EQ(whole.final_eval.tokens, 4);
  EXPECT_EQ(parts.final_eval.loss, whole.final_eval.loss);
}

TEST_F(DpoRun, RefusesToResumeWithoutItsReference) {
  RunConfig c = dpo_config();
  c.train.stop_at = 4;
  train(c, folder / "run");
  c.train.stop_at = 0;
  const std::string path = (folder / "run/reference.safetensors").string();
  fs::rename(path, path + ".away");
  EXPECT_THAT(refusal_of_run(c, folder / "run", true), HasSubstr(path + ": is not there"));
  c.train.stop_at = 1;
  c.data.val_fraction = 0.2;
  train(c, folder / "other");
  fs::copy(folder / "other/reference.safetensors", path);
  c = dpo_config();
  EXPECT_THAT(refusal_of_run(c, folder / "run", true),
              HasSubstr(path + ": train is not the reference of this run's pairs"));
}

TEST_F(DpoRun, RefusesOtherDataAndPairsWithoutDpo) {
  RunConfig c = dpo_config();
  c.head.dpo_beta = 0;
  EXPECT_THAT(refusal_of_run(c), HasSubstr("pairs.jsonl: holds pairs of answers (chosen, rejected), which "
                                           "train only with dpo.beta above 0"));
  const auto refusal_of = [&](const std::string& lines) {
    write_file(pairs, lines);
    return refusal_of_run(dpo_config());
  };
  EXPECT_THAT(
      refusal_of(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]})"),
      HasSubstr("pairs.jsonl: holds no pairs of answers (chosen, rejected), which dpo.beta needs"));
  const std::string good = R"({"prompt": "the cat", "chosen": " sat.", "rejected": " ran."})";
  EXPECT_EQ(refusal_of(good + "\n" + good), "no error") << "texts need no template";
  EXPECT_THAT(refusal_of(good + "\n" + R"({"prompt": "the cat", "chosen": " sat."})"),
              HasSubstr("pairs.jsonl:2: is no pair of answers"));
  EXPECT_THAT(refusal_of(good + "\n" + R"({"chosen": " sat.", "rejected": " ran."})"),
              HasSubstr("pairs.jsonl:2: its answers are texts, and there is no prompt"));
  EXPECT_THAT(
      refusal_of(
          good + "\n" +
          R"({"chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "assistant", "content": "a"}]})"),
      HasSubstr("pairs.jsonl:2: chosen and rejected must begin with the same messages"));
}

}  // namespace
}  // namespace ingot
