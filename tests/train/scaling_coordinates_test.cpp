// The coordinate check of muP (Yang et al. 2022, arXiv:2203.03466, appendix D.1): after a few steps the
// change of each activation has the same size at every width with the rule, and grows with the width without
// it.
#include <gtest/gtest.h>

#include <cmath>

#include "ingot/core/arena.h"
#include "tests/nn/infer_one.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

constexpr int kPromptTokens = 24;

struct Coordinates {
  std::vector<float> block, logits;
};

// Returns the output of the block and the logits of the last token for a fixed prompt.
Coordinates coordinates(SmallTraining& training) {
  Layout& layout = training.trainer.layout();
  const Transformer& model = *layout.model;
  const int64_t width = model.config().width;
  std::vector<int32_t> ids(kPromptTokens);
  for (size_t i = 1; i < ids.size(); ++i) ids[i] = (ids[i - 1] * 5 + 3) % 61;
  Arena memory("coordinates", size_t{64} << 20), scratch("inference", size_t{64} << 20);
  OneSequence sequence{model.make_caches(memory, 1, kPromptTokens)};
  LayerContext ctx{.params = *layout.params,
                   .region = *layout.region,
                   .scratch = scratch,
                   .stream = *layout.stream,
                   .dropout = {}};
  Coordinates result{.block = std::vector<float>(static_cast<size_t>(kPromptTokens * width)),
                     .logits = std::vector<float>(static_cast<size_t>(model.config().vocab_padded()))};
  const Tensor x(result.block.data(), DType::f32, {kPromptTokens, width});
  model.infer_units(ctx, sequence.batch(ids), {0, 2}, {}, x, sequence.caches,
                    {});  // the embedding and the only block
  sequence.append(model, ctx, ids, result.logits);
  result.logits.resize(61);
  return result;
}

double rms_of_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(b[i]) - a[i], 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

struct Change {
  double block = 0, logits = 0;
};

Change change_at(int width, const char* rule) {
  const RunConfig config =
      small_config({fmt::format("model.width={}", width), fmt::format("model.heads={}", width / 16),
                    "model.tied=false", "optimizer.lr=0.004", "scaling.base=width=32 head_dim=16",
                    fmt::format("scaling.width_rule={}", rule)});
  SmallTraining training(config);
  const Coordinates before = coordinates(training);
  for (int i = 0; i < 4; ++i) training.trainer.step(training.loader, {.lr = config.optimizer.lr});
  const Coordinates after = coordinates(training);
  return {rms_of_difference(before.block, after.block), rms_of_difference(before.logits, after.logits)};
}

TEST(ScalingCoordinates, ChangesKeepTheirSizeOverWidthWithMupAndGrowWithoutIt) {
  const Change narrow = change_at(32, "mup");
  const Change mup = change_at(256, "mup"), plain = change_at(256, "none");
  RecordProperty("mup", fmt::format("{} {}", mup.block / narrow.block, mup.logits / narrow.logits));
  RecordProperty("plain", fmt::format("{} {}", plain.block / narrow.block, plain.logits / narrow.logits));
  // Eight times the width: the change of a layer that is not scaled grows by up to 8.
  EXPECT_LT(mup.block / narrow.block, 2) << mup.block << " " << narrow.block;
  EXPECT_GT(mup.block / narrow.block, 0.5) << mup.block << " " << narrow.block;
  EXPECT_LT(mup.logits / narrow.logits, 2) << mup.logits << " " << narrow.logits;
  EXPECT_GT(mup.logits / narrow.logits, 0.5) << mup.logits << " " << narrow.logits;
  EXPECT_GT(plain.block / narrow.block, 2) << plain.block << " " << narrow.block;
  EXPECT_GT(plain.logits / narrow.logits, 2) << plain.logits << " " << narrow.logits;
}

}  // namespace
}  // namespace ingot
