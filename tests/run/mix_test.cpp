// Weighted mixtures (data.mix) in whole runs.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ingot/data/loader.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/data/run_data.h"
#include "ingot/run/eval/run_eval.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MixTest : public TrainingTest {
 protected:
  std::string letters(char first, int64_t count, uint32_t stream) const {
    std::string text;
    const RandomKey key{.seed = 3, .purpose = Purpose::kSample, .stream = stream, .step = 0};
    for (int64_t i = 0; i < count; ++i)
      text += static_cast<char>(first + random_word(key, static_cast<uint64_t>(i)) % 5);
    return text;
  }
  // Source 0 has the letters a to e, source 1 the letters A to E.
  RunConfig mix_config() {
    write_file(folder / "low.txt", letters('a', 3000, 1));
    write_file(folder / "high.txt", letters('A', 1000, 2));
    RunConfig c = config(DType::f32);
    c.data.train = {(folder / "low.txt").string(), (folder / "high.txt").string()};
    c.data.mix = {3, 1};
    c.data.tokenizer = "byte";
    c.model.dropout = 0;
    c.train.steps = 20;
    c.eval.every = 10;
    c.checkpoint.every = 5;
    return c;
  }
  static std::vector<double> losses(const std::filesystem::path& run) {
    std::vector<double> values;
    for (const MetricsRow& row : read_metrics(run / "metrics.jsonl"))
      if (const auto loss = row.number("loss")) values.push_back(*loss);
    return values;
  }
  static nlohmann::json run_json(const std::filesystem::path& run) {
    return nlohmann::json::parse(read_file(run / "run.json"));
  }
};

TEST_F(MixTest, BatchesHaveTheShares) {
  const RunConfig c = mix_config();
  const RunData data = load_run_data(c.data, std::nullopt);
  const Sampler sampler = sampler_of(c, data);
  Loader loader(data.train, sampler, {.shape = {.batch = 8, .context = 24, .vocab_size = 257}});
  for (int i = 0; i < 20; ++i) {
    const Batch& batch = loader.next();
    int64_t high = 0;
    for (int64_t row = 0; row < 8; ++row) {
      const int32_t* tokens = batch.tokens.as<int32_t>() + row * 24;
      const bool is_high = tokens[0] < 'a';
      high += is_high;
      for (int64_t t = 0; t < 24; ++t)
        ASSERT_EQ(tokens[t] < 'a', is_high) << "a window crosses into another source";
    }
    EXPECT_EQ(high, 2);  // one of four samples, in a batch of eight
  }
}

// The sum of these weights is no number.
TEST_F(MixTest, HugeWeightsHaveShares) {
  RunConfig c = mix_config();
  c.data.mix = {1.2e308, 1.2e308};
  const RunData data = load_run_data(c.data, std::nullopt);
  EXPECT_EQ(data.mix[0].share, 0.5);
  EXPECT_EQ(data.mix[1].share, 0.5);
}

TEST_F(MixTest, ARunReportsEverySource) {
  const RunConfig c = mix_config();
  train(c, folder / "run");
  const nlohmann::json mix = run_json(folder / "run")["mix"];
  ASSERT_EQ(mix.size(), 2u);
  EXPECT_EQ(mix[0]["source"], c.data.train[0]);
  EXPECT_EQ(mix[0]["share"], 0.75);
  EXPECT_EQ(mix[1]["share"], 0.25);
  // 20 steps of 6 windows of 24 tokens; 90 of 120 windows from 2700 tokens, 30 from 900.
  EXPECT_DOUBLE_EQ(mix[0]["epochs"], 90 * 24 / 2700.0);
  EXPECT_DOUBLE_EQ(mix[1]["epochs"], 30 * 24 / 900.0);
  std::optional<double> whole, low, high;
  for (const MetricsRow& row : read_metrics(folder / "run" / "metrics.jsonl")) {
    if (!row.number("val_loss")) continue;
    whole = row.number("val_loss");
    low = row.number("val_loss/" + c.data.train[0]);
    high = row.number("val_loss/" + c.data.train[1]);
  }
  ASSERT_TRUE(whole && low && high);
  EXPECT_DOUBLE_EQ(*whole, 0.75 * *low + 0.25 * *high);
  EXPECT_EQ(mix[1]["val_loss"], *high);
  EXPECT_THAT(said, HasSubstr("75 % " + c.data.train[0] + " (2700 tokens)"));
  EXPECT_THAT(said, HasSubstr(fmt::format("{} {:.4f}", c.data.train[1], *high)));
}

TEST_F(MixTest, ResumesExactly) {
  RunConfig c = mix_config();
  train(c, folder / "whole");
  c.train.stop_at = 7;
  train(c, folder / "parts");
  c.train.stop_at = 0;
  train(c, folder / "parts", true);
  EXPECT_EQ(losses(folder / "parts"), losses(folder / "whole"));
  expect_equal_files(folder / "whole" / "checkpoints" / "step-000000020",
                     folder / "parts" / "checkpoints" / "step-000000020");
}

TEST_F(MixTest, AnotherMixtureIsRefusedUnlessAccepted) {
  RunConfig c = mix_config();
  c.train.stop_at = 5;
  train(c, folder / "run");
  c.train.stop_at = 0;
  c.data.mix = {1, 1};
  EXPECT_THAT(error_of([&] { train(c, folder / "run", true); }),
              HasSubstr("data.mix [3.0, 1.0] -> [1.0, 1.0]"));
  EXPECT_EQ(train(c, folder / "run", true, DataMismatch::kAccepted).status, TrainOutcome::Status::kCompleted);
}

// Without a mixture the order is that of the whole stream, so runs from before data.mix continue unchanged.
TEST_F(MixTest, OneSourceTrainsAsWithoutAMixture) {
  RunConfig c = mix_config();
  c.data.train.pop_back();
  c.data.mix = {0.5};
  train(c, folder / "mix");
  c.data.mix.clear();
  train(c, folder / "plain");
  EXPECT_EQ(losses(folder / "mix"), losses(folder / "plain"));
}

TEST_F(MixTest, ValidationDataOfItsOwnIsEvaluatedAsOneText) {
  RunConfig c = mix_config();
  write_file(folder / "val.txt", letters('a', 200, 9));
  c.data.val = {(folder / "val.txt").string()};
  const RunData data = load_run_data(c.data, std::nullopt);
  EXPECT_EQ(data.val.tokens(), 200);
  EXPECT_EQ(data.mix.at(0).train_tokens, 3000);  // nothing is held out
  EXPECT_EQ(data.mix.at(1).train_tokens, 1000);
  int calls = 0;
  evaluate_run(data, 0, [&](const TokenSource& text, int64_t, const EvalProgress&) {
    ++calls;
    EXPECT_EQ(text.tokens(), 200);
    return EvalResult{};
  });
  EXPECT_EQ(calls, 1);
}

// bits per byte = bits per token of the mixture / bytes per token of the mixture.
TEST_F(MixTest, EvaluationWeighsTokensByShare) {
  const RunData data = load_run_data(mix_config().data, std::nullopt);
  std::vector<int64_t> asked;
  const RunEval eval =
      evaluate_run(data, 1000, [&](const TokenSource&, int64_t max_tokens, const EvalProgress&) {
        asked.push_back(max_tokens);
        const double loss = asked.size() == 1 ? 2 : 4, bytes = asked.size() == 1 ? 4 : 2;
        return EvalResult{.loss = loss,
                          .top1 = 0.5,
                          .tokens = 10,
                          .text_tokens = 20,
                          .bits_per_byte = loss / std::log(2.0) / bytes};
      });
  EXPECT_THAT(asked, ElementsAre(750, 250));
  EXPECT_DOUBLE_EQ(eval.result.loss, 0.75 * 2 + 0.25 * 4);
  EXPECT_DOUBLE_EQ(eval.result.bits_per_byte, 2.5 / std::log(2.0) / 3.5);
  EXPECT_EQ(eval.result.tokens, 20);
  EXPECT_EQ(eval.result.text_tokens, 40);
}

TEST_F(MixTest, AnInterruptedEvaluationStopsAtOnce) {
  const RunData data = load_run_data(mix_config().data, std::nullopt);
  int calls = 0;
  const RunEval eval = evaluate_run(data, 0, [&](const TokenSource&, int64_t, const EvalProgress&) {
    ++calls;
    return EvalResult{.is_complete = false};
  });
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(eval.result.is_complete);
}

TEST_F(MixTest, TheSameFileTwiceHasTwoNames) {
  RunConfig c = mix_config();
  c.data.train[1] = c.data.train[0];
  const RunData data = load_run_data(c.data, std::nullopt);
  EXPECT_EQ(data.mix[0].name, c.data.train[0]);
  EXPECT_EQ(data.mix[1].name, c.data.train[0] + " (2)");
}

TEST_F(MixTest, ATrainedTokenizerSeesEverySource) {
  RunConfig c = mix_config();
  c.data.tokenizer = "char";
  EXPECT_EQ(load_run_data(c.data, std::nullopt).tokenizer->vocab_size(), 10);
}

TEST_F(MixTest, ASourceThatIsTooShortIsNamed) {
  RunConfig c = mix_config();
  write_file(folder / "high.txt", letters('A', 20, 2));
  const RunData data = load_run_data(c.data, std::nullopt);
  EXPECT_THAT(error_of([&] { sampler_of(c, data); }),
              HasSubstr("high.txt has 18 tokens, and a window of model.context = 24 needs 25"));
}

}  // namespace
}  // namespace ingot
