// Several prompts at the same time give the tokens of the same prompts one by one.
#include "ingot/infer/generate.h"

#include "ingot/infer/log_likelihood.h"
#include "ingot/infer/texts_in_order.h"
#include "tests/infer/sampled_tokens.h"
#include "tests/nn/small_model.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

using test::five_prompts;
using test::sampled;

constexpr SampleConfig kGreedy{.temperature = 0};
constexpr SampleConfig kRandom{.temperature = 0.8f, .top_k = 20, .top_p = 0.95f};

// Returns the losses of all tokens but the first, by one pass of the model over all.
std::vector<float> losses_of(test::SmallModel& small, std::vector<int32_t> tokens) {
  const int64_t T = std::ssize(tokens) - 1;
  test::Activations activations(small.model, 1, T, forward_only_plan(small.model.config().layers));
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {1, T}),
                         .targets = Tensor(targets.data(), DType::i32, {1, T}),
                         .doc_start = {}};
  LayerContext ctx = small.context();
  small.model.forward(ctx, batch, activations.saved, 0);
  const auto* losses = activations.saved.in_evaluation.losses.as<float>();
  return {losses, losses + T};
}

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
  Generator generator(*layout.model, training.trainer.params(), *layout.region, *layout.stream, {.slots = 2});
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
  Generator generator(*layout.model, training.trainer.params(), *layout.region, *layout.stream, {.slots = 2});
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

// Sequences with samples of their own join while others are continued, and get the tokens of one alone.
TEST(Generation, OthersMayJoinInTheMiddle) {
  SmallTraining training(small_config({"model.layers=2"}));
  training.steps(20);
  Layout& layout = training.trainer.layout();
  Generator generator(*layout.model, training.trainer.params(), *layout.region, *layout.stream, {.slots = 2});
  const std::vector<Generator::Prompt> prompts = five_prompts();
  const SampleConfig samples[] = {kGreedy, kRandom, {.temperature = 2}, kRandom, kGreedy};
  std::vector<std::vector<TokenId>> got(5);
  std::vector<bool> has_ended(5);
  const auto sink = [&](const SequenceToken& token) {
    EXPECT_EQ(token.position, prompts[token.sequence].tokens.size() + got[token.sequence].size());
    EXPECT_EQ(std::ssize(token.logits), layout.model->config().vocab);
    got[token.sequence].push_back(token.token);
    return true;
  };
  size_t next = 0;
  for (int step = 0; next < 5 || !generator.is_idle(); ++step) {
    if (step % 4 == 0 && next < 5 && !generator.is_full()) {
      const SequenceRequest request{.tokens = prompts[next].tokens,
                                    .seed = prompts[next].seed,
                                    .wanted = static_cast<int64_t>(7 + 3 * next),
                                    .sample = samples[next]};
      generator.check(request);
      EXPECT_EQ(generator.start(request), next);
      ++next;
    }
    if (!generator.is_idle()) generator.step(sink, [&](size_t i) { has_ended[i] = true; });
  }
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(has_ended[i]);
    EXPECT_EQ(got[i],
              sampled(training.trainer, {&prompts[i], 1}, static_cast<int64_t>(7 + 3 * i), 1, samples[i])[0])
        << i;
  }
}

// The tokens of a prompt come with the logits whose loss is that of a pass over the whole prompt.
TEST(Generation, APromptMayHaveScores) {
  ModelConfig config = test::small_llama(2);
  config.dropout = 0;
  config.context = 24;
  test::SmallModel small(config, DType::f32, 1, config.context, 11);
  Generator generator(small.model, small.store, small.region, small.stream, {.slots = 2, .has_scores = true});
  generator.keep_caches();
  const RandomKey key{.seed = 3};
  for (const int64_t count : {1, 2, 20, 24, 24}) {  // the last one finds its tokens in the cache
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<int32_t>(random_word(key, static_cast<uint64_t>(i)) % 61));
    const std::vector<float> losses = count == 1 ? std::vector<float>{} : losses_of(small, tokens);
    std::vector<size_t> positions;
    bool has_ended = false;
    generator.start({.tokens = {tokens.begin(), tokens.end()}, .wanted = 0, .has_scores = true});
    while (!generator.is_idle())
      generator.step(
          [&](const SequenceToken& token) {
            positions.push_back(token.position);
            EXPECT_EQ(token.token, static_cast<TokenId>(tokens[token.position]));
            EXPECT_NEAR(-LogLikelihood(token.logits).of(token.logits[token.token]),
                        losses[token.position - 1], 2e-5)
                << token.position << " of " << count;
            return true;
          },
          [&](size_t) { has_ended = true; });
    EXPECT_TRUE(has_ended);
    ASSERT_EQ(std::ssize(positions), count - 1);
    for (size_t i = 0; i < positions.size(); ++i) EXPECT_EQ(positions[i], i + 1);
  }
}

// A sequence that is ended from outside, or by the sink, leaves its slot to another one.
TEST(Generation, ASequenceMayBeEnded) {
  SmallTraining training(small_config({}));
  Layout& layout = training.trainer.layout();
  Generator generator(*layout.model, training.trainer.params(), *layout.region, *layout.stream, {.slots = 1});
  const SequenceRequest request{.tokens = {1, 2}, .wanted = 9};
  int tokens = 0, ended = 0;
  const auto step = [&](bool continues) {
    generator.step(
        [&](const SequenceToken&) {
          ++tokens;
          return continues;
        },
        [&](size_t) { ++ended; });
  };
  const size_t first = generator.start(request);
  EXPECT_TRUE(generator.is_full());
  step(true);
  generator.end(first);
  generator.end(first);
  EXPECT_TRUE(generator.is_idle());
  EXPECT_GT(generator.start(request), first);
  step(false);
  EXPECT_TRUE(generator.is_idle());
  EXPECT_EQ(tokens, 2);
  EXPECT_EQ(ended, 1) << "the caller knows of the first one";
  EXPECT_THROW(generator.check({.tokens = {1'000'000}}), Error);
  EXPECT_THROW(generator.check({.tokens = {1}, .sample = {.temperature = -1}}), Error);
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
