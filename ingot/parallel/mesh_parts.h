// MeshParts: the parts of a trainer (train/trainer_parts.h) that a mesh of ranks shares. The place where the
// strategies are put together.
#pragma once

#include <memory>

#include "ingot/comm/mesh.h"
#include "ingot/parallel/comm_reducer.h"
#include "ingot/parallel/ddp.h"
#include "ingot/parallel/fsdp.h"
#include "ingot/parallel/mesh_update.h"
#include "ingot/parallel/pipeline.h"
#include "ingot/parallel/pipeline_store.h"
#include "ingot/parallel/tensor.h"
#include "ingot/parallel/tensor_store.h"
#include "ingot/train/trainer_parts.h"

namespace ingot {

// kUsage error naming the nearest layouts unless the config's degrees make `ranks` ranks, and the model's
// units and the step's micro-batches a pipeline.
void check_layout(const RunConfig& config, int ranks);
MeshShape mesh_shape(const ParallelConfig& config);

class MeshParts : public TrainerParts {
 public:
  // Borrows both, which outlive it. Called by all ranks of the world.
  MeshParts(Communicator& world, Mesh& mesh);

  TrainingStore& make_store(const ParamList& list, const RunConfig& config, Stream& stream) override;
  SharedUpdate* shared_update(const RunConfig& config) override;
  Reducers reducers() override { return {all_, data_, weights_}; }
  Region& region() override { return tensor_ ? *tensor_ : TrainerParts::region(); }
  TensorShare tensor_share(const RunConfig& config) override;
  DataShare share(const TrainConfig& config) override {
    return DataShare::of(config, mesh_.dp->size(), mesh_.dp->rank());
  }
  Stages* make_stages(const Transformer& model, const RunConfig& config) override;
  TimeLimit& time_limit() override;
  std::unique_ptr<TrainerParts> planned() const override;

 protected:
  // The groups that are neither the world nor an axis of the mesh.
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
  Communicator& gradient_group(Stream& stream);  // the data-parallel ranks, for where gradients lie

  Communicator& world_;
  Mesh& mesh_;
  Groups groups_;
  Backing backing_ = Backing::kMemory;  // what new memory is made of
  CommReducer all_, data_, weights_;
  std::unique_ptr<TensorRegion> tensor_;  // with more than one tensor-parallel rank
  StagePlan plan_;                        // with more than one stage
  ParamList own_list_;                    // of this rank's units
  std::unique_ptr<TensorStore> tensor_store_;
  std::unique_ptr<ResidentStore> resident_;
  std::unique_ptr<Communicator> device_dp_;  // mesh_.dp, for tensors of a device
  std::unique_ptr<DdpStore> ddp_;
  std::unique_ptr<FsdpStore> fsdp_;
  std::unique_ptr<PipelineStore> pipeline_store_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<MeshUpdate> update_;
};

// What PlannedMeshParts borrow as MeshParts.
struct PlannedMesh {
  PlannedMesh(const MeshShape& shape, int rank)
      : world(planned_communicator("world", rank, shape.size())), mesh(Mesh::planned(shape, rank)) {}
  std::unique_ptr<Communicator> world;
  Mesh mesh;
};

// The parts of one rank of a mesh for a plan of memory, on one process. Where stages or owners of matrices
// follow from what only ranks together can measure or know, the plan takes nominal costs and this rank's
// numbers for all.
class PlannedMeshParts : private PlannedMesh, public MeshParts {
 public:
  PlannedMeshParts(const MeshShape& shape, int rank);
};

}  // namespace ingot
