// Tensor parallelism on simulated devices, through the host and over a simulated NCCL: losses are those of
// one rank on the CPU.
#include "ingot/core/staging.h"
#include "tests/simulated_cuda/mpi/layout_cases.h"

namespace ingot {
namespace {

// Heads for four tensor-parallel ranks.
RunConfig four_heads(RunConfig c) {
  c = small(c, 2);
  c.model.heads = c.model.kv_heads = 4;
  return c;
}

RunConfig with_head(RunConfig c, HeadKind kind) {
  c.head.kind = kind;
  c.head.accumulation = HeadAccumulation::kKahan;
  c.head.z_loss = 1e-3;
  c.head.label_smoothing = 0.05;
  return c;
}

// One kv-head for all tensor-parallel ranks.
RunConfig with_shared_heads(RunConfig c) {
  c.model.kv_heads = 1;
  c.model.has_qkv_bias = true;
  return c;
}

// The dims of every shard of two or four ranks are multiples of 16.
RunConfig wide_in_fp8(RunConfig c, Fp8Recipe recipe) {
  c = in(c, DType::bf16);
  c.model.width = 64;
  c.model.ffn = 128;
  c.model.context = 16;
  c.precision.fp8.recipe = recipe;
  return c;
}
RunConfig with_fp8_head(RunConfig c, HeadKind kind, Fp8HeadScaling scaling) {
  c = in(c, DType::bf16);
  c.model.context = 16;
  c.head = {.kind = kind, .precision = HeadPrecision::kFp8, .fp8_scaling = scaling};
  return c;
}

ParallelConfig sharing_tokens() { return sharing(4); }
ParallelConfig sharing_heads_only() { return sharing(4, false); }

INSTANTIATE_TEST_SUITE_P(
    Tensor, SimulatedLayout,
    ::testing::Values(
        DeviceCase{"llama", four_heads(llama()), sharing_tokens},
        DeviceCase{"llama_whole_tokens", four_heads(llama()), sharing_heads_only},
        DeviceCase{"gpt2", four_heads(gpt2()), sharing_tokens},
        DeviceCase{"gpt2_whole_tokens", four_heads(gpt2()), sharing_heads_only},
        DeviceCase{"lion", four_heads(with_rule(gpt2(), "lion")), sharing_tokens},
        DeviceCase{"adafactor", four_heads(with_rule(gpt2(), "adafactor")), sharing_tokens},
        DeviceCase{"adafactor_of_shards", four_heads(with_rule(llama(), "adafactor")), sharing_of_shards},
        DeviceCase{"adamw8bit", in_8bit(four_heads(llama())), sharing_tokens},
        DeviceCase{"adamw8bit_of_shards", in_8bit(four_heads(gpt2())), sharing_of_shards},
        DeviceCase{"dense_head", with_head(four_heads(gpt2()), HeadKind::kDense), sharing_tokens},
        DeviceCase{"recompute_head", with_head(four_heads(llama()), HeadKind::kRecompute), sharing_tokens},
        DeviceCase{"adapters", with_adapters(four_heads(llama())), sharing_tokens},
        DeviceCase{"adapters_of_shards", with_adapters(four_heads(gpt2())), sharing_of_shards},
        DeviceCase{"bf16", in(four_heads(llama()), DType::bf16), sharing_tokens},
        DeviceCase{"f16", in(four_heads(gpt2()), DType::f16), sharing_tokens},
        DeviceCase{"stochastic", without_masters(four_heads(llama())), sharing_tokens},
        DeviceCase{"stochastic_of_shards", without_masters(four_heads(gpt2())), sharing_of_shards},
        DeviceCase{"fp8", wide_in_fp8(four_heads(llama()), Fp8Recipe::kTensorwise), sharing_tokens},
        DeviceCase{"fp8_delayed", wide_in_fp8(four_heads(gpt2()), Fp8Recipe::kDelayed), sharing_tokens},
        DeviceCase{"fp8_head",
                   with_fp8_head(four_heads(llama()), HeadKind::kChunked, Fp8HeadScaling::kCurrent),
                   sharing_tokens},
        DeviceCase{"fp8_head_static",
                   with_fp8_head(four_heads(gpt2()), HeadKind::kRecompute, Fp8HeadScaling::kStatic),
                   sharing_tokens},
        DeviceCase{"shared_heads", with_shared_heads(four_heads(llama())), sharing_tokens},
        DeviceCase{"shared_heads_of_shards", with_shared_heads(four_heads(llama())), sharing_of_shards},
        DeviceCase{"shared_heads_adafactor", with_shared_heads(four_heads(with_rule(llama(), "adafactor"))),
                   sharing_tokens},
        DeviceCase{"shared_heads_adamw8bit", with_shared_heads(in_8bit(four_heads(llama()))), sharing_tokens},
        DeviceCase{"replicas", four_heads(llama()), [] { return sharing(2); }},
        DeviceCase{"shards", four_heads(gpt2()), sharing_of_shards}),
    [](const auto& info) { return std::string(info.param.name); });

// A block of 256 elements has one scale, even if several ranks hold its elements.
TEST_F(SimulatedLayout, TensorParallelRanksHaveTheSameScalesOf8BitStates) {
  RunConfig config = in_8bit(four_heads(llama()));
  config.parallel = sharing_tokens();
  config.train.device = Device::kCuda;
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training together(config, mesh);
  together.losses(2);
  Staging staging;
  int64_t scales = 0;
  for (const Optimizer::State& state : together.trainer.state().optimizer.states()) {
    if (!state.name.starts_with("m_absmax.") && !state.name.starts_with("v_absmax.")) continue;
    const Tensor here = staging.read(state.tensor, *together.trainer.layout().stream);
    const std::vector<float> own(here.as<float>(), here.as<float>() + here.elements());
    std::vector<double> most(own.begin(), own.end());
    mesh.tp->max(most);
    for (size_t i = 0; i < own.size(); ++i) ASSERT_EQ(own[i], most[i]) << state.name << " at " << i;
    scales += state.tensor.elements();
  }
  EXPECT_GT(scales, 0);
}

}  // namespace
}  // namespace ingot
