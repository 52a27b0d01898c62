// Training on packed conversations, of which only some tokens are targets.
#include <gtest/gtest.h>

#include "ingot/data/chat/chat_data.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

// A conversation of `count` tokens, of which the second half are targets.
ChatTokens conversation(TokenId first, size_t count, bool has_targets = true) {
  ChatTokens tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.ids.push_back((first + static_cast<TokenId>(i) * 7) % 61);
    tokens.is_target.push_back(has_targets && i >= count / 2);
  }
  return tokens;
}

struct ChatTraining {
  ChatTraining(TokenSource packed, const std::vector<std::string>& keys)
      : source(std::move(packed)),
        config(small_config(keys)),
        trainer(config, parallelize(config)),
        sampler(SampleOrder::kEpochs, 1,
                std::vector<Sampler::Source>{{.tokens = source.tokens(), .is_packed = true}},
                config.model.context),
        loader(source, sampler,
               {.shape = trainer.layout().batch_shape, .readers = 1, .reader = 0, .prefetch = 1}) {
    trainer.initialise();
  }
  TokenSource source;
  RunConfig config;
  Trainer trainer;
  Sampler sampler;
  Loader loader;
};

const std::vector<std::string> kMasked = {"data.document_mask=true", "model.positions=rope",
                                          "model.layers=2"};

// The neighbour's tokens are no targets, so the loss is that of the other conversation alone.
TEST(ChatTraining, APerturbedNeighbourChangesNoBitOfALoss) {
  const ChatTokens one = conversation(3, 14);
  const auto loss_beside = [&](TokenId neighbour, const std::vector<std::string>& keys) {
    const std::vector<ChatTokens> chats = {conversation(neighbour, 15, false), one};
    ChatTraining training(pack(chats, 32, 61), keys);
    EXPECT_EQ(training.trainer.evaluate(training.source, 0).tokens, 7);
    const StepResult step = training.trainer.step(training.loader, {.lr = 3e-3});
    return std::array{training.trainer.evaluate(training.source, 0).loss, step.loss, step.grad_norm};
  };
  const auto want = loss_beside(0, kMasked);
  for (const TokenId neighbour : {1u, 20u, 60u}) EXPECT_EQ(loss_beside(neighbour, kMasked), want);
  EXPECT_NE(loss_beside(0, {"model.positions=rope"}), loss_beside(20, {"model.positions=rope"}))
      << "without mask";
}

// Micro-batches have different numbers of targets; the step is the mean over all of them.
TEST(ChatTraining, GradientsAreMeansOverTheTargetsOfAllMicroBatches) {
  std::vector<ChatTokens> chats;
  for (TokenId i = 0; i < 4; ++i) chats.push_back(conversation(i, 20 + 4 * i));
  const TokenSource packed = pack(chats, 32, 61);
  const auto step_of = [&](const char* batch, const char* accum) {
    std::vector<std::string> keys = kMasked;
    keys.emplace_back(batch);
    keys.emplace_back(accum);
    ChatTraining training(packed, keys);
    return training.trainer.step(training.loader, {.lr = 3e-3});
  };
  const StepResult whole = step_of("train.batch_size=4", "train.grad_accum=1"),
                   parts = step_of("train.batch_size=1", "train.grad_accum=4");
  EXPECT_EQ(whole.tokens, 10 + 12 + 14 + 16);
  EXPECT_EQ(parts.tokens, whole.tokens);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-6);
  EXPECT_NEAR(parts.grad_norm, whole.grad_norm, 1e-5 * whole.grad_norm);
}

}  // namespace
}  // namespace ingot
