// Layout is what one rank of a run holds: its groups of ranks, its shard of the samples, the model and its
// shard of the weights, and what executes the passes. parallelize() (parallel/parallelize.h) makes it.
#pragma once

#include <memory>

#include "ingot/comm/mesh.h"
#include "ingot/config/data_shard.h"
#include "ingot/data/loader.h"
#include "ingot/nn/param_store.h"
#include "ingot/nn/region.h"
#include "ingot/nn/transformer.h"
#include "ingot/optim/update_comm.h"
#include "ingot/train/executor.h"

namespace ingot {

// A member may borrow those above it.
struct Layout {
  std::unique_ptr<Mesh> own_mesh;  // A run on a single rank owns its mesh.
  Mesh* mesh = nullptr;            // borrowed
  DataShard data_shard;
  BatchShape batch_shape;          // Every micro-batch of this rank has this shape.
  std::unique_ptr<Stream> stream;  // without a device if the layout is for a memory plan
  // head_ranks: the ranks of tp with the same kv-heads as this one; null if no other has them. end_ranks: the
  // first and the last stage; null if they share no table.
  std::unique_ptr<Communicator> head_ranks, end_ranks;
  // Groups of the mesh for tensors on a device; null otherwise, and where nothing uses them.
  std::unique_ptr<Communicator> tensor_group;                                // tp
  std::unique_ptr<Communicator> head_group, end_group;                       // head_ranks and end_ranks
  std::unique_ptr<Communicator> gradient_group, shard_group, replica_group;  // dp, shard and replicate
  std::unique_ptr<Communicator> update_group;  // update, if it has other ranks than shard_group
  std::unique_ptr<Communicator> world_group;   // all ranks, if no group above has them
  Communicator* step_group = nullptr;  // the group with all ranks, for the check of asynchronous steps
  std::unique_ptr<Region> region;
  std::unique_ptr<Transformer> model;

  std::unique_ptr<ParamList> stage_list;  // parameters of this rank's stages; null without stages
  std::unique_ptr<TrainingStore> params;  // this rank's weights

  std::unique_ptr<UpdateComm> update_comm;  // communication of updates; null if every rank makes them alone
  std::unique_ptr<Executor> executor;
};

}  // namespace ingot
