// Pipelines, and products of every axis, on simulated devices, through the host and over a simulated NCCL.
#include <unistd.h>

#include <cstdlib>

#include "ingot/comm/device_group.h"
#include "ingot/core/copy.h"
#include "ingot/core/staging.h"
#include "tests/parallel/mpi/hand_over.h"
#include "tests/simulated_cuda/mpi/layout_cases.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {
namespace {

// Six units, and micro-batches for every schedule on four ranks.
RunConfig deep(RunConfig c) {
  c = small(c, 4);
  c.train.grad_accum = 4;
  return c;
}
// Ten units, for two stages on each of four ranks.
RunConfig deepest(RunConfig c) {
  c = deep(c);
  c.model.layers = 6;
  return c;
}
RunConfig recomputing(RunConfig c) {
  c.activations.policy = RecomputePolicy::kBlock;
  return c;
}
RunConfig in_fp8(RunConfig c) {
  c = in(c, DType::bf16);
  c.model.context = 16;
  c.precision.fp8.recipe = Fp8Recipe::kTensorwise;
  return c;
}

ParallelConfig gpipe() { return stages(4, PipelineKind::kGpipe); }
ParallelConfig one_f_one_b() { return stages(4, PipelineKind::kOneFOneB); }
ParallelConfig interleaved() { return stages(4, PipelineKind::kInterleaved, 2); }
ParallelConfig stages_of_replicas() { return stages(2, PipelineKind::kOneFOneB); }
ParallelConfig stages_of_tensors() { return stages(2, PipelineKind::kOneFOneB, 1, 2); }
ParallelConfig stages_of_shards() {
  ParallelConfig c = stages_of_replicas();
  std::swap(c.dp, c.fsdp);
  return c;
}

INSTANTIATE_TEST_SUITE_P(
    Stages, SimulatedLayout,
    ::testing::Values(DeviceCase{"gpipe", deep(llama()), gpipe},
                      DeviceCase{"one_f_one_b", deep(llama()), one_f_one_b},
                      DeviceCase{"interleaved", deepest(llama()), interleaved},
                      DeviceCase{"tied", deep(gpt2()), one_f_one_b},
                      DeviceCase{"recomputing", recomputing(deep(llama())), one_f_one_b},
                      DeviceCase{"bf16", in(deep(gpt2()), DType::bf16), one_f_one_b, 3e-3},
                      DeviceCase{"fp8", in_fp8(deep(llama())), one_f_one_b, 5e-3},
                      DeviceCase{"of_replicas", deep(gpt2()), stages_of_replicas},
                      DeviceCase{"of_tensors", deep(llama()), stages_of_tensors},
                      DeviceCase{"of_shards", deep(gpt2()), stages_of_shards}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot
