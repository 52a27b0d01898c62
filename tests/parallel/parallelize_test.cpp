// The layouts that parallelize() composes. The tests on ranks (tests/parallel/mpi) compare what they compute.
#include "ingot/parallel/parallelize.h"

#include <gtest/gtest.h>

#include "ingot/parallel/distributed_muon.h"
#include "ingot/parallel/fsdp.h"
#include "ingot/parallel/pipeline.h"
#include "ingot/parallel/tensor.h"
#include "ingot/train/local_executor.h"

namespace ingot {
namespace {

RunConfig eight_layers(const ParallelConfig& parallel) {
  RunConfig c;
  c.model = {.layers = 8, .heads = 4, .width = 32, .context = 16, .vocab = 64};
  c.train.batch_size = 4;
  c.train.grad_accum = 4;
  c.parallel = parallel;
  return c;
}

Layout planned(const RunConfig& config, Mesh& mesh) { return parallelize(config, mesh, Backing::kAddresses); }

TEST(Parallelize, OneRankHoldsEverythingItself) {
  const Layout layout = parallelize(eight_layers({}));
  EXPECT_EQ(layout.mesh->world->size(), 1);
  EXPECT_TRUE(dynamic_cast<ResidentStore*>(layout.params.get()));
  EXPECT_TRUE(dynamic_cast<LocalExecutor*>(layout.executor.get()));
  EXPECT_FALSE(layout.update_comm || layout.stage_list || layout.executor->pipeline());
  EXPECT_EQ(layout.batch_shape.batch, 4);
}

TEST(Parallelize, ComposesAllStrategies) {
  const RunConfig config = eight_layers({.dp = 2, .fsdp = 2, .tp = 2, .pp = 2});
  for (int rank = 0; rank < 16; ++rank) {
    Mesh mesh = Mesh::planned(mesh_shape(config.parallel), rank);
    const Layout layout = planned(config, mesh);
    EXPECT_TRUE(dynamic_cast<FsdpStore*>(layout.params.get()));
    EXPECT_EQ(&layout.params->list(), &layout.model->params())
        << "checkpoints have the parameters of all stages";
    EXPECT_EQ(&layout.params->held(), layout.stage_list.get());
    EXPECT_TRUE(dynamic_cast<TensorRegion*>(layout.region.get()));
    EXPECT_TRUE(dynamic_cast<Pipeline*>(layout.executor.get()));
    EXPECT_TRUE(dynamic_cast<DistributedMuon*>(layout.update_comm.get()));
    EXPECT_EQ(layout.data_shard.ranks, 4);
  }
}

// Replicas of a shard divide its elements among themselves when a checkpoint is written.
TEST(Parallelize, RanksTogetherHoldEveryWeightOnce) {
  for (const ParallelConfig& parallel : {ParallelConfig{.dp = 2, .tp = 2, .pp = 2},
                                         ParallelConfig{.dp = 2, .tp = 2}, ParallelConfig{.pp = 4}}) {
    const RunConfig config = eight_layers(parallel);
    double held = 0;
    for (int rank = 0; rank < parallel.ranks(); ++rank) {
      Mesh mesh = Mesh::planned(mesh_shape(parallel), rank);
      const Layout layout = planned(config, mesh);
      for (const ParamShard& shard : layout.params->shards())
        if (const Replicas replicas = layout.params->replicas(shard.id); replicas.count > 0)
          held += static_cast<double>(shard.elements()) / static_cast<double>(replicas.count);
    }
    const Transformer model(config.model.resolved(), DType::f32);
    double whole = 0;
    for (const ParamSpec& spec : model.params().specs()) whole += static_cast<double>(spec.elements());
    EXPECT_EQ(held, whole) << parallel.to_string();
  }
}

TEST(Parallelize, ALayoutThatCannotBeShardedIsRefused) {
  RunConfig config = eight_layers({.tp = 2});
  config.model.heads = 3;
  config.model.width = 33;
  Mesh mesh = Mesh::planned(mesh_shape(config.parallel), 0);
  EXPECT_THROW(planned(config, mesh), Error);
}

}  // namespace
}  // namespace ingot
