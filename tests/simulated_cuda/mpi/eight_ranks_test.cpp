// Layouts that four ranks cannot have, on eight simulated devices: three axes at the same time, and one axis
// of eight ranks.
#include "tests/simulated_cuda/mpi/layout_cases.h"

namespace ingot {
namespace {

// Heads for four tensor-parallel ranks, a sequence for each of eight data-parallel ones, and two
// micro-batches for each of two.
RunConfig broad(RunConfig c) {
  c = small(c, 2);
  c.model.heads = c.model.kv_heads = 4;
  c.train.grad_accum = 4;
  return c;
}

// Two micro-batches for each of four data-parallel ranks.
RunConfig broader(RunConfig c) {
  c.train.grad_accum = 8;
  return c;
}

RunConfig with_f32_muon(const RunConfig& c) { return with_muon(broad(c), DType::f32); }

RunConfig with_shared_heads(RunConfig c) {
  c.model.kv_heads = 2;
  return c;
}

ParallelConfig layout_of(int dp, int fsdp, int pp, int tp) {
  ParallelConfig c;
  c.dp = dp;
  c.fsdp = fsdp;
  c.pp = pp;
  c.tp = tp;
  c.muon_payload = DType::f32;
  return c;
}

ParallelConfig fsdp_stages_tensors() { return layout_of(1, 2, 2, 2); }
ParallelConfig stages_of_replicas_of_shards() { return layout_of(2, 2, 2, 1); }
ParallelConfig eight_shards() { return layout_of(1, 8, 1, 1); }
ParallelConfig four_tensors_two_stages() { return layout_of(1, 1, 2, 4); }

INSTANTIATE_TEST_SUITE_P(
    EightRanks, SimulatedLayout,
    ::testing::Values(
        DeviceCase{"fsdp_stages_tensors", broad(llama()), fsdp_stages_tensors},
        DeviceCase{"fsdp_stages_tensors_muon", with_f32_muon(gpt2()), fsdp_stages_tensors},
        DeviceCase{"fsdp_stages_tensors_stochastic", without_masters(broad(gpt2())), fsdp_stages_tensors},
        DeviceCase{"stages_of_replicas_of_shards", broader(with_f32_muon(llama())),
                   stages_of_replicas_of_shards},
        DeviceCase{"eight_shards", with_f32_muon(llama()), eight_shards},
        DeviceCase{"four_tensors_two_stages", broad(gpt2()), four_tensors_two_stages},
        DeviceCase{"four_tensors_share_heads", with_shared_heads(broad(llama())), four_tensors_two_stages}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot
