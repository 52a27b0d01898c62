// MeshParts implements TrainerParts (train/trainer_parts.h) for a mesh of ranks. It combines the parallel
// strategies.
#pragma once

#include <memory>

#include "ingot/comm/mesh.h"
#include "ingot/parallel/comm_reducer.h"
#include "ingot/parallel/ddp.h"
#include "ingot/parallel/distributed_muon.h"
#include "ingot/parallel/fsdp.h"
#include "ingot/parallel/pipeline.h"
#include "ingot/parallel/pipeline_store.h"
#include "ingot/parallel/tensor.h"
#include "ingot/parallel/tensor_store.h"
#include "ingot/train/trainer_parts.h"

namespace ingot {

// Throws a kUsage error that names the nearest layouts unless the config's degrees multiply to `ranks`
// and its pipeline fits the model's units and the step's micro-batches.
void check_layout(const RunConfig& config, int ranks);
MeshShape mesh_shape(const ParallelConfig& config);

class MeshParts : public TrainerParts {
 public:
  // Borrows both, which outlive it. All ranks of the world call this.
  MeshParts(Communicator& world, Mesh& mesh);

  TrainingStore& make_store(const ParamList& list, const RunConfig& config, Stream& stream) override;
  UpdateComm* update_comm(const RunConfig& config) override;
  Reducers reducers() override { return {all_, data_, weights_}; }
  Region& region() override { return tensor_ ? *tensor_ : TrainerParts::region(); }
  TensorParallel tensor_parallel(const RunConfig& config) override;
  DataShard data_shard(const TrainConfig& config) override {
    return DataShard::of(config, mesh_.dp->size(), mesh_.dp->rank());
  }
  Stages* make_stages(const Transformer& model, const RunConfig& config) override;
  TimeLimit& time_limit() override;
  std::unique_ptr<TrainerParts> planned() const override;

 protected:
  // The groups that are neither the world nor a dim of the mesh.
  struct Groups {
    std::unique_ptr<Communicator> data;     // replicas, shards and stages
    std::unique_ptr<Communicator> weights;  // shards, stages and tensor-parallel ranks
    std::unique_ptr<Communicator> update;   // shards and tensor-parallel ranks of one stage
  };
  MeshParts(Communicator& world, Mesh& mesh, Groups groups);

 private:
  static Groups split_groups(Communicator& world, const Mesh& mesh);
  TrainingStore& make_parts(const ParamList& list, const RunConfig& config, Stream& stream);
  StagePlan plan_stages(const RunConfig& config);
  Communicator& gradient_group(Stream& stream);  // the data-parallel ranks, on the gradients' device

  Communicator& world_;
  Mesh& mesh_;
  Groups groups_;
  Backing backing_ = Backing::kMemory;  // the backing of new memory
  CommReducer all_, data_, weights_;
  std::unique_ptr<TensorRegion> tensor_;  // null without tensor parallelism
  StagePlan plan_;                        // used with more than one stage
  ParamList own_list_;                    // parameters of this rank's units
  std::unique_ptr<TensorStore> tensor_store_;
  std::unique_ptr<ResidentStore> resident_;
  std::unique_ptr<Communicator> device_dp_;  // mesh_.dp, for tensors on a device
  std::unique_ptr<DdpStore> ddp_;
  std::unique_ptr<FsdpStore> fsdp_;
  std::unique_ptr<PipelineStore> pipeline_store_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<DistributedMuon> update_;
};

// The communicators and the mesh that PlannedMeshParts owns and MeshParts borrows.
struct PlannedMesh {
  PlannedMesh(const MeshShape& shape, int rank)
      : world(planned_communicator("world", rank, shape.size())), mesh(Mesh::planned(shape, rank)) {}
  std::unique_ptr<Communicator> world;
  Mesh mesh;
};

// The parts of one rank of a mesh, for a memory plan in a single process. If the stages or the owners of
// matrices depend on what only all ranks together can measure or know, the plan uses nominal costs, and
// this rank's numbers for all ranks.
class PlannedMeshParts : private PlannedMesh, public MeshParts {
 public:
  PlannedMeshParts(const MeshShape& shape, int rank);
};

}  // namespace ingot
