// Several prompts at the same time give the tokens of the same prompts one by one.
#include "ingot/infer/generate.h"

#include "ingot/infer/texts_in_order.h"
#include "tests/infer/sampled_tokens.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

using test::five_prompts;
using test::sampled;

constexpr SampleConfig kGreedy{.temperature = 0};
constexpr SampleConfig kRandom{.temperature = 0.8f, .top_k = 20, .top_p = 0.95f};

class Batch : public ::testing::TestWithParam<const char*> {
 protected:
  // Trained a little, so that no two logits are nearly equal.
  void SetUp() override { training.steps(20); }
  SmallTraining training{small_config({"model.layers=2", "model.heads=4", "model.kv_heads=2",
                                       std::string("model.") + GetParam(), "model.cap=tanh"})};
};

// The sequences are longer than the context of 32 tokens, and so is one prompt.
TEST_P(Batch, GivesTheTokensOfTheSamePromptsOneByOne) {
  for (const SampleConfig& config : {kGreedy, kRandom}) {
    std::vector<std::vector<TokenId>> one_by_one;
    for (const Generator::Prompt& prompt : five_prompts())
      one_by_one.push_back(sampled(training.trainer, {&prompt, 1}, 40, 1, config)[0]);
    for (const int64_t slots : {1, 2, 5, 8})
      EXPECT_EQ(sampled(training.trainer, five_prompts(), 40, slots, config), one_by_one) << slots;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Batch, ::testing::Values("positions=learned", "qk_norm=true", "window=12"),
                         [](const auto& info) {
                           const std::string key = info.param;
                           return key.substr(0, key.find('='));
                         });

// A cached sequence is what the model makes of the whole window: its likeliest tokens are those of a model
// that reads everything again for each token.
TEST(Generation, EqualsReadingEverythingAgain) {
  SmallTraining training(small_config({"model.layers=2"}));
  training.steps(20);
  const Generator::Prompt prompt{{5, 28, 21}, 1};
  const std::vector<TokenId> got = sampled(training.trainer, {&prompt, 1}, 12, 1, kGreedy)[0];
  Generator::Prompt again = prompt;
  for (const TokenId id : got) {
    EXPECT_EQ(sampled(training.trainer, {&again, 1}, 1, 1, kGreedy)[0], std::vector<TokenId>{id});
    again.tokens.push_back(id);
  }
}

TEST(Generation, EndsAtTheStopTokenAndWhereTheSinkSaysSo) {
  SmallTraining training(small_config({}));
  training.steps(5);
  Layout& layout = training.trainer.layout();
  Generator generator(*layout.model, training.trainer.params(), *layout.region, *layout.stream, 2);
  const std::vector<TokenId> free = sampled(training.trainer, five_prompts(), 9, 1, kGreedy)[0];
  const std::vector<TokenId> stops = {1'000'000, free[4]};
  std::vector<std::vector<TokenId>> got(5);
  std::vector<size_t> ended;
  generator.run(
      five_prompts(), 9, kGreedy, stops,
      [&](size_t i, TokenId id) {
        got[i].push_back(id);
        return i != 1 || got[i].size() < 2;
      },
      [&](size_t i) { ended.push_back(i); });
  const auto stop = std::ranges::find(free, free[4]);
  EXPECT_EQ(got[0], std::vector<TokenId>(free.begin(), stop));
  EXPECT_LE(got[1].size(), 2u);
  std::ranges::sort(ended);
  EXPECT_EQ(ended, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

// A prompt that begins with what a slot holds reads only the rest, and gets the same tokens.
TEST(Generation, KeptCachesChangeNoToken) {
  SmallTraining training(small_config({"model.layers=2"}));
  training.steps(20);
  Layout& layout = training.trainer.layout();
  Generator generator(*layout.model, training.trainer.params(), *layout.region, *layout.stream, 2);
  generator.limit_ids(61);
  generator.keep_caches();
  std::vector<TokenId> conversation = {5, 28, 21};
  const auto answer_to = [&](const std::vector<TokenId>& tokens, int64_t count) {
    const Generator::Prompt prompt{tokens, 1};
    std::vector<TokenId> got;
    generator.run({&prompt, 1}, count, kGreedy, {}, [&](size_t, TokenId id) {
      got.push_back(id);
      return true;
    });
    EXPECT_EQ(got, sampled(training.trainer, {&prompt, 1}, count, 1, kGreedy)[0]) << tokens.size();
    return got;
  };
  int64_t read = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const std::vector<TokenId> answer = answer_to(conversation, 4);
    // The question, and all tokens of the answer but the last; the last one of the turn before.
    EXPECT_EQ(generator.tokens_read() - read, 3 + 3 + (turn > 0 ? 1 : 0)) << turn;
    read = generator.tokens_read();
    conversation.insert(conversation.end(), answer.begin(), answer.end());
    conversation.insert(conversation.end(), {7, 9, 11 + static_cast<TokenId>(turn)});
  }
  // Another conversation takes the other slot and leaves the first one's.
  answer_to({1, 2, 3, 4}, 2);
  EXPECT_EQ(generator.tokens_read() - read, 4 + 1);
  read = generator.tokens_read();
  conversation.resize(conversation.size() - 1);
  conversation.push_back(30);  // another last word
  answer_to(conversation, 2);
  EXPECT_EQ(generator.tokens_read() - read, 4 + 1);
  // Longer than the context of 32 tokens: the model reads a part of it again, and that is kept.
  answer_to(conversation, 40);
  answer_to(conversation, 2);
}

TEST(TextsInOrder, HoldsPiecesBackUntilTheirTurn) {
  std::string shown;
  TextsInOrder texts(3, [&](size_t text, std::string_view piece, bool is_last) {
    shown += std::to_string(text) + std::string(piece) + (is_last ? "." : ",");
  });
  texts.add(1, "b", false);
  texts.add(0, "a", false);
  texts.add(2, "c", true);
  EXPECT_EQ(shown, "0a,");
  texts.add(0, "", true);
  EXPECT_EQ(shown, "0a,0.1b,");
  texts.add(1, "d", true);
  EXPECT_EQ(shown, "0a,0.1b,1d.2c.");
}

}  // namespace
}  // namespace ingot
