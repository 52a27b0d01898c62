// Asynchronous steps of several ranks, and the configs that are tested with them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "ingot/core/copy.h"
#include "ingot/core/staging.h"
#include "tests/parallel/mpi/ranks_fixture.h"
#include "tests/simulated_cuda/mpi/small_run.h"
#include "tests/simulated_cuda/nccl/simulated_nccl.h"

namespace ingot {

struct AsyncRanks {
  const char* name;
  RunConfig config;
};
inline void PrintTo(const AsyncRanks& c, std::ostream* out) { *out << c.name; }

// grad_clip is below the norms of these models, so the factor matters.
inline RunConfig clipped(RunConfig c) {
  c = small(std::move(c));
  c.train.device = Device::kCuda;
  c.train.grad_accum = world->size();
  c.optimizer.grad_clip = 0.2;
  c.head.raw_ce_every = 0;
  return c;
}

// fsdp: 0 for all ranks.
inline RunConfig laid_out(RunConfig c, int64_t fsdp) {
  c.parallel.fsdp = fsdp == 0 ? world->size() : std::min<int64_t>(fsdp, world->size());
  c.parallel.dp = world->size() / c.parallel.fsdp;
  return c;
}

inline RunConfig laid_out(RunConfig c, const ParallelConfig& layout) {
  c.parallel = layout;
  return c;
}

inline ParallelConfig tensors() { return sharing(2); }
inline ParallelConfig all_stages() { return stages(2, PipelineKind::kOneFOneB); }
inline ParallelConfig stages_of_tensors() { return stages(2, PipelineKind::kOneFOneB, 1, 2); }

inline RunConfig replicated(const RunConfig& c) { return laid_out(clipped(c), 1); }

// The first steps overflow, and the steps after them are undone.
inline RunConfig in_f16(const RunConfig& c) {
  RunConfig f16 = laid_out(clipped(c), 0);
  f16.precision.compute = DType::f16;
  f16.precision.loss_scale.init = 0x1p30;
  return f16;
}

inline RunConfig in_fp8(const RunConfig& c) {
  RunConfig fp8 = laid_out(clipped(c), 2);
  fp8.precision.compute = DType::bf16;
  fp8.precision.fp8.recipe = Fp8Recipe::kTensorwise;
  return fp8;
}

// The largest values of a tensor lie on different ranks in different steps, and the scales of a step come
// from the two before.
inline RunConfig delayed(RunConfig c) {
  c.precision.compute = DType::bf16;
  c.precision.fp8.recipe = Fp8Recipe::kDelayed;
  c.precision.fp8.amax_history = 2;
  return c;
}

// A trainer on all ranks.
struct Together {
  explicit Together(const RunConfig& c) : mesh(Mesh::make(*world, mesh_shape(c.parallel))), run(c, mesh) {}

  void submit(bool is_asynchronous) {
    run.trainer.submit(run.loader, {.micros = run.config.train.grad_accum,
                                    .inputs = {.lr = run.config.optimizer.lr},
                                    .is_asynchronous = is_asynchronous});
  }
  // Makes the update that a synchronous step asks for.
  StepResult collect() {
    StepResult result = run.trainer.collect(run.loader);
    if (result.lowered_scale)
      run.trainer.discard();
    else
      run.trainer.update(result);
    return result;
  }
  std::vector<StepResult> synchronous(int steps) {
    std::vector<StepResult> results;
    for (int i = 0; i < steps; ++i) {
      submit(false);
      results.push_back(collect());
    }
    return results;
  }
  // With delayed scales the first step is synchronous, because no amax has been recorded.
  void begin() {
    if (run.trainer.depth({}) == 0) synchronous(1);
  }
  // Submits the next step before it collects one.
  std::vector<StepResult> asynchronous(int steps) {
    std::vector<StepResult> results;
    for (int in_flight = 0; std::ssize(results) < steps;) {
      for (; in_flight < 2 && std::ssize(results) + in_flight < steps; ++in_flight) submit(true);
      results.push_back(collect());
      in_flight = results.back().is_repeated ? 0 : in_flight - 1;
    }
    return results;
  }
  std::vector<float> weights_here() {
    Staging staging;
    std::vector<float> all;
    for (const ParamShard& shard : run.trainer.params().shards()) {
      const Tensor w = staging.read(shard.w, *run.trainer.layout().stream);
      all.insert(all.end(), w.as<float>(), w.as<float>() + w.elements());
    }
    return all;
  }
  // Puts a NaN into a gradient of one rank, the first tensor-parallel one of the last stage or shard: into
  // one that the next step adds to or, if the step overwrites all, into one that the rank receives over NCCL.
  // Returns false if there is no way.
  bool poison() {
    const std::vector<ParamShard> shards = run.trainer.params().shards();
    const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
    if (std::ranges::all_of(shards, &ParamShard::is_overwritten) && (!gpus || std::string(gpus) != "own"))
      return false;
    if (world->rank() != world->size() - run.config.parallel.tp) return true;
    Stream& stream = *run.trainer.layout().stream;
    for (const ParamShard& shard : shards) {
      if (shard.elements() == 0 || shard.is_overwritten) continue;
      Staging staging;
      const Tensor host = staging.read(shard.grad, stream);
      host.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      copy(shard.grad, host, stream);
      synchronize(stream);
      return true;
    }
    // The last rank's shard of the smallest unit is padding.
    simulated_nccl::spoil_next_reduce_scatter(ParamList::kAlign + 1);
    return true;
  }

  Mesh mesh;
  Training run;
};

}  // namespace ingot
