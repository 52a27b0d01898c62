// Files of weights that lack a tensor, or have it in another form.
#include "ingot/checkpoint/hf_weights.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

class HfWeightsTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  // Returns the error of check_hf_tensors about a file with these tensors, all of which are zero.
  std::string refusal(const Transformer& model, const std::vector<HfTensor>& tensors,
                      DType dtype = DType::f32) {
    std::vector<SafetensorsSource> sources;
    for (const HfTensor& t : tensors) {
      int64_t elements = 1;
      for (const int64_t dim : t.shape) elements *= dim;
      const size_t bytes = static_cast<size_t>(elements) * size_bytes(dtype);
      zeros_.resize(std::max(zeros_.size(), bytes));
      sources.push_back({.name = t.name, .dtype = dtype, .shape = t.shape, .bytes = {}, .stream = {}});
      sources.back().stream = [this, bytes](const ByteSink& sink) { sink(std::span(zeros_).first(bytes)); };
    }
    write_safetensors(path_, sources);
    try {
      check_hf_tensors(SafetensorsFile(path_), model);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return error.what();
    }
    return "";
  }

  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("ingot-hf-weights-" + std::to_string(::getpid()) + ".safetensors");
  std::vector<std::byte> zeros_;
};

ModelConfig tiny_model(bool is_gpt2) {
  ModelConfig c;
  c.layers = 1;
  c.heads = 2;
  c.width = 8;
  c.ffn = 16;
  c.context = 4;
  c.vocab = 5;
  if (is_gpt2) {
    c.norm = NormKind::kLayerNorm;
    c.positions = PositionKind::kLearned;
    c.mlp = Activation::kGeluTanh;
  } else {
    c.is_tied = false;
  }
  return c.resolved();
}

TEST_F(HfWeightsTest, NamesTheTensorThatIsMissingOrHasAnotherShape) {
  for (const bool is_gpt2 : {false, true}) {
    const Transformer model(tiny_model(is_gpt2), DType::f32);
    const std::vector<HfTensor> all = hf_tensors(model);
    EXPECT_EQ(refusal(model, all), "");
    EXPECT_EQ(refusal(model, all, DType::bf16), "");
    EXPECT_THAT(refusal(model, all, DType::i32), HasSubstr("F32, BF16 and F16 can be read"));
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<HfTensor> some = all;
      some.erase(some.begin() + static_cast<std::ptrdiff_t>(i));
      // The biases that only Hugging Face's model has may be missing, and may have any shape.
      const bool is_needed = all[i].param >= 0;
      const auto names_it = [&](const std::string& text) {
        return is_needed ? text.find(all[i].name) != std::string::npos : text.empty();
      };
      EXPECT_PRED1(names_it, refusal(model, some)) << all[i].name;
      some = all;
      ++some[i].shape.back();
      EXPECT_PRED1(names_it, refusal(model, some)) << all[i].name;
    }
  }
}

}  // namespace
}  // namespace ingot
