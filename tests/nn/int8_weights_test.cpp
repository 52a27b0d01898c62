// A model with 8-bit weights computes what the model with the values of its codes computes.
#include "ingot/nn/int8_weights.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/nn/infer_one.h"
#include "tests/nn/small_model.h"
#include "tests/reference/numeric.h"

namespace ingot::test {
namespace {

class Int8WeightsOfModel : public ::testing::TestWithParam<std::tuple<ModelConfig (*)(ModelConfig), DType>> {
 protected:
  DType compute = std::get<1>(GetParam());
  SmallModel made{std::get<0>(GetParam())(small_llama(2)), compute, 1, 16, 5};
  const Transformer& model = made.model;
  Int8Weights weights{model.params(), compute};

  // Quantises the masters, and then gives the model's store the values of the codes.
  void SetUp() override {
    for (int id = 0; id < std::ssize(model.params().specs()); ++id) {
      const Tensor master = made.store.master(id);
      if (const Int8Matrix* matrix = weights.int8_weight(id))
        int8_quantize(*matrix, master);
      else
        assign(weights.weight(id), to_doubles(master));
    }
    Stream stream;
    weights.copy_to(made.store, stream);
  }
  // The logits after tokens that the model reads in pieces.
  std::vector<float> logits(ParamStore& params, const std::vector<size_t>& pieces) {
    Arena scratch("scratch", model.infer_scratch_bytes(16, {1, 16})), memory("caches", size_t{1} << 20);
    LayerContext ctx{
        .params = params, .region = made.region, .scratch = scratch, .stream = made.stream, .dropout = {}};
    OneSequence sequence{model.make_caches(memory, 1, 16)};
    std::vector<int32_t> tokens(16);
    std::iota(tokens.begin(), tokens.end(), 7);
    std::vector<float> result;
    size_t begin = 0;
    for (const size_t piece : pieces) {
      sequence.append(model, ctx, {tokens.data() + begin, piece}, result);
      begin += piece;
    }
    result.resize(static_cast<size_t>(model.config().vocab));
    return result;
  }
};

// The prompt's product rounds weights to the compute dtype, as the store does; single tokens use exact
// values, so that their logits differ by these roundings: 20 matrices deep, each a relative error of less
// than one unit.
TEST_P(Int8WeightsOfModel, LogitsAreThoseOfTheValues) {
  for (const auto& pieces : {std::vector<size_t>{16}, std::vector<size_t>{11, 1, 1, 3}}) {
    const std::vector<float> want = logits(made.store, pieces), got = logits(weights, pieces);
    double size = 0;
    for (const float z : want) size = std::max(size, std::abs(static_cast<double>(z)));
    for (size_t v = 0; v < want.size(); ++v)
      EXPECT_NEAR(got[v], want[v], 20 * unit_roundoff(compute) * size)
          << v << " after " << pieces.size() << " pieces";
  }
}

TEST_P(Int8WeightsOfModel, TakeLessMemoryAndHaveNoOtherCopy) {
  const int64_t n = model.params().elements();
  const auto room = static_cast<size_t>(weights.int8_room().elements());
  EXPECT_LT(weights.bytes() - room, static_cast<size_t>(n) * 5 / 4);
  EXPECT_THROW(weights.weight(0), Error);  // the embedding
}

ModelConfig llama_style(ModelConfig c) { return c; }

std::string int8_style_name(const ::testing::TestParamInfo<Int8WeightsOfModel::ParamType>& info) {
  const char* styles[] = {"llama", "gpt2", "speedrun", "olmo2", "whole_speedrun"};
  return fmt::format("{}_{}", styles[info.index / 3], name(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Styles, Int8WeightsOfModel,
                         ::testing::Combine(::testing::Values(&llama_style, &gpt2_style, &speedrun_style,
                                                              &olmo2_style, &whole_speedrun_style),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)),
                         int8_style_name);

}  // namespace
}  // namespace ingot::test
