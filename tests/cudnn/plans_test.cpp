// Tests that cuDNN makes plans for the attention graphs, for a Hopper GPU that is described to it, so no
// GPU is needed. The tests are skipped, by name, if the library cannot be loaded.
#include "ingot/ops/cuda/plan_cudnn.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ingot/ops/attention/attention_graph.h"

namespace ingot::test {
namespace {

struct Case {
  const char* name;
  AttentionShape s;
  DType dtype = DType::bf16;
  bool has_documents = false;
  bool masks_with_infinity = false;
  int64_t documents = 0;
  int64_t window = 0;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class CudnnPlans : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!library) GTEST_SKIP() << cudnn::kLibrary << " cannot be loaded";
    std::ifstream file(INGOT_SOURCE_DIR "/tests/cudnn/h200.json");
    std::stringstream text;
    text << file.rdbuf();
    target.description = text.str();
  }

  // The layout is that of the layers: q, k and v share one (B,T,(H+2K)*D) buffer,
  // and their gradients another.
  FusedAttention problem() const {
    const auto& s = GetParam().s;
    const int64_t width = (s.H + 2 * s.K) * s.D, flat = s.H * s.D;
    const FusedAttention::Strides packed{s.T * width, width, s.D}, alone{s.T * flat, flat, s.D};
    FusedAttention p;
    p.dtype = GetParam().dtype;
    p.B = s.B, p.T = s.T, p.H = s.H, p.K = s.K, p.D = s.D;
    p.scale = 0.125f;
    p.has_documents = GetParam().has_documents;
    p.masks_with_infinity = GetParam().masks_with_infinity;
    p.documents = GetParam().documents;
    p.window = GetParam().window;
    p.q = p.k = p.v = p.dq = p.dk = p.dv = packed;
    p.out = p.d_out = alone;
    return p;
  }

  std::unique_ptr<cudnn::Library> library = cudnn::Library::load();
  cudnn::Target target;
};

TEST_P(CudnnPlans, ForwardAndBackwardFitTheirScratch) {
  const AttentionGraph forward = attention_forward_graph(problem());
  const auto& s = GetParam().s;
  const bool has_table = GetParam().documents > 0;
  const size_t rows = static_cast<size_t>(s.B * s.H * s.T);
  // The rest of the scratch for documents, with a start of 256 bytes for each of its parts.
  const size_t table =
      has_table ? static_cast<size_t>(4 * (GetParam().documents + 1)) * 4 + rows * 4 + 2048 : 0;
  const auto plans =
      cudnn::Plan::make(*library, forward.graph, target, fused_forward_bytes(s, has_table) - table, {});
  EXPECT_EQ(plans.size(), 1u) << "forward";

  const AttentionGraph backward = attention_backward_graph(problem());
  const auto packed = static_cast<size_t>(s.B * s.T * (s.H + 2 * s.K) * s.D);
  const size_t of_heads = s.H > s.K ? packed * static_cast<size_t>(s.H / s.K) * 4 : 0;
  const size_t own_bytes =
      has_table ? table + rows * 4 + packed * 4 + of_heads : rows * 4 * static_cast<size_t>(1 + s.D) + 1024;
  const auto back =
      cudnn::Plan::make(*library, backward.graph, target, fused_backward_bytes(s, has_table) - own_bytes, {});
  ASSERT_EQ(back.size(), 1u) << "backward";
  // The plan has no buffer of scores: its scratch grows linearly with T.
  EXPECT_LT(back.front().workspace_bytes(), rows * static_cast<size_t>(s.D) * 8 + (1 << 20));
}

// Training times the first plans against each other, and later makes the chosen one by its number.
TEST_P(CudnnPlans, AreMadeByTheirNumbers) {
  const OpGraph graph = attention_forward_graph(problem()).graph;
  const auto plans = cudnn::Plan::make(*library, graph, target, fused_forward_bytes(GetParam().s, true),
                                       {.first = 0, .most = 4});
  ASSERT_GE(plans.size(), 1u);
  EXPECT_LE(plans.size(), 4u);
  for (size_t i = 1; i < plans.size(); ++i) EXPECT_GT(plans[i].number(), plans[i - 1].number());
  const int64_t last = plans.back().number();
  const auto again = cudnn::Plan::make(*library, graph, target, fused_forward_bytes(GetParam().s, true),
                                       {.first = last, .most = 1});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again.front().number(), last);
}

// tools/check_cudnn_plans.py runs these tests with several versions.
TEST(CudnnLibrary, HasTheVersionThatIsAskedFor) {
  const char* version = std::getenv("INGOT_CUDNN_VERSION");
  if (!version) GTEST_SKIP() << "no INGOT_CUDNN_VERSION";
  const auto library = cudnn::Library::load();
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(library->version(), std::stoul(version));
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudnnPlans,
    ::testing::Values(
        Case{"gpt2_124m", {4, 1024, 1024, 12, 12, 64}},
        Case{"infinity", {4, 1024, 1024, 12, 12, 64}, DType::bf16, false, true},
        Case{"odd_length", {2, 1000, 1000, 4, 4, 80}, DType::f16}, Case{"widest", {2, 512, 512, 4, 2, 256}},
        Case{"short", {1, 7, 7, 2, 1, 8}}, Case{"documents", {2, 512, 512, 8, 2, 128}, DType::bf16, true},
        Case{"sequences", {4, 1024, 1024, 12, 12, 64}, DType::bf16, false, false, 16},
        Case{"sequences_infinity", {2, 512, 512, 8, 2, 128}, DType::bf16, false, true, 16},
        Case{"window", {2, 1024, 1024, 8, 2, 128}, DType::bf16, false, false, 0, 256},
        Case{"window_of_documents", {2, 512, 512, 8, 2, 128}, DType::bf16, true, false, 0, 100},
        Case{"window_of_sequences", {2, 512, 512, 8, 2, 128}, DType::bf16, false, true, 16, 100}),
    case_name);

// The models of bench/gpu, and the head widths between theirs.
INSTANTIATE_TEST_SUITE_P(SlowShapes, CudnnPlans,
                         ::testing::Values(Case{"llama_350m", {16, 2048, 2048, 16, 16, 64}},
                                           Case{"llama_1_3b", {4, 2048, 2048, 16, 16, 128}},
                                           Case{"long", {1, 16384, 16384, 32, 8, 128}},
                                           Case{"d16", {2, 512, 512, 4, 4, 16}},
                                           Case{"d24", {2, 512, 512, 4, 4, 24}, DType::bf16, true},
                                           Case{"d96", {2, 512, 512, 4, 1, 96}},
                                           Case{"d128_f16", {2, 512, 512, 8, 8, 128}, DType::f16, true},
                                           Case{"d160", {2, 512, 512, 4, 4, 160}},
                                           Case{"d192", {2, 512, 512, 4, 4, 192}, DType::bf16, true},
                                           Case{"d256", {2, 512, 512, 4, 4, 256}, DType::f16}),
                         case_name);

// cuDNN matches graphs by their nodes: 14 forward and 22 backward, more with a document mask or shared keys.
TEST(CudnnGraphs, HaveTheNodesThatCudnnMatches) {
  FusedAttention p{.dtype = DType::bf16, .B = 1, .T = 64, .H = 4, .K = 4, .D = 64, .scale = 1};
  EXPECT_EQ(attention_forward_graph(p).graph.operations.size(), 14u);
  EXPECT_EQ(attention_backward_graph(p).graph.operations.size(), 22u);
  p.has_documents = true;
  EXPECT_EQ(attention_forward_graph(p).graph.operations.size(), 16u);
  p.K = 2;
  EXPECT_EQ(attention_backward_graph(p).graph.operations.size(), 26u);
}

}  // namespace
}  // namespace ingot::test
