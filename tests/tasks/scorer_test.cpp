// The scores of requests are the losses of their tokens, however they share the cache.
#include "ingot/tasks/scorer.h"

#include <gtest/gtest.h>

#include "tests/nn/small_model.h"

namespace ingot {
namespace {

ScoreRequest request_of(size_t record, uint64_t option, int64_t length, size_t first, int64_t vocab) {
  ScoreRequest request{.first = first, .record = record};
  const RandomKey shared{.seed = 3, .step = record / 3}, own{.seed = 4, .step = record * 10 + option};
  for (int64_t i = 0; i < length; ++i) {
    const bool is_shared = i + 2 < static_cast<int64_t>(first);
    request.tokens.push_back(static_cast<int32_t>(
        random_word(is_shared ? shared : own, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
  }
  return request;
}

// The score by a pass of the model over all tokens.
Score expected(test::SmallModel& small, const ScoreRequest& request) {
  const int64_t T = std::ssize(request.tokens) - 1;
  test::Activations activations(small.model, 1, T, forward_only_plan(small.model.config().layers));
  std::vector<int32_t> tokens = request.tokens, targets(request.tokens.begin() + 1, request.tokens.end());
  const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {1, T}),
                         .targets = Tensor(targets.data(), DType::i32, {1, T}),
                         .doc_start = {}};
  LayerContext ctx = small.context();
  small.model.forward(ctx, batch, activations.saved, 0);
  Score score;
  for (int64_t t = static_cast<int64_t>(request.first) - 1; t < T; ++t) {
    score.log_likelihood -= static_cast<double>(activations.saved.in_evaluation.losses.as<float>()[t]);
    score.is_greedy &= activations.saved.in_evaluation.is_correct.as<uint8_t>()[t] != 0;
  }
  return score;
}

void expect_losses(ModelConfig config) {
  config.dropout = 0;
  config.context = 24;
  test::SmallModel small(config, DType::f32, 1, config.context, 11);
  std::vector<ScoreRequest> requests;
  for (size_t record = 0; record < 40; ++record)
    for (uint64_t option = 0; option < 1 + record % 4; ++option) {
      const int64_t length = 2 + static_cast<int64_t>((record * 7 + option * 3) % 24);
      requests.push_back(request_of(record, option, length,
                                    1 + record % static_cast<size_t>(std::min<int64_t>(length - 1, 20)),
                                    config.vocab));
    }
  std::vector<Score> want;
  for (const ScoreRequest& request : requests) want.push_back(expected(small, request));
  for (const int64_t slots : {1, 3, 20}) {
    Scorer scorer(small.model, small.store, small.region, small.stream,
                  scoring_shape(slots, 24, Device::kCpu));
    int64_t last = 0, all = -1;
    const std::vector<Score> got = *scorer.run(requests, [&](int64_t tokens, int64_t total) {
      EXPECT_GE(tokens, last);
      last = tokens;
      all = total;
      return true;
    });
    EXPECT_EQ(last, all);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].log_likelihood, want[i].log_likelihood, 2e-5) << slots << " slots, request " << i;
      EXPECT_EQ(got[i].is_greedy, want[i].is_greedy) << slots << " slots, request " << i;
    }
  }
}

TEST(Scorer, EndsWhenItsProgressSaysSo) {
  ModelConfig config = test::small_llama(1);
  config.context = 24;
  test::SmallModel small(config, DType::f32, 1, config.context, 11);
  const std::vector<ScoreRequest> requests(6, request_of(0, 0, 10, 4, config.vocab));
  Scorer scorer(small.model, small.store, small.region, small.stream, scoring_shape(1, 24, Device::kCpu));
  int calls = 0;
  EXPECT_EQ(scorer.run(requests, [&](int64_t, int64_t) { return ++calls < 2; }), std::nullopt);
  EXPECT_EQ(calls, 2);
}

TEST(Scorer, GivesTheLossesOfALlama) { expect_losses(test::small_llama(2)); }
TEST(Scorer, GivesTheLossesOfAGpt2) { expect_losses(test::gpt2_style(test::small_llama(2))); }
TEST(Scorer, GivesTheLossesOfASpeedrun) {
  ModelConfig config = test::whole_speedrun_style(test::small_llama(4));
  config.cap = {.kind = LogitCap::kTanh, .a = 3};
  expect_losses(config);
}

}  // namespace
}  // namespace ingot
