#include "ingot/parallel/mesh_parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ingot/comm/device_group.h"

namespace ingot {
namespace {

int degree(int64_t n) { return static_cast<int>(n); }

// Lists the layouts of `ranks` ranks that differ from the wanted one only in dp and fsdp.
std::string nearest_layouts(const RunConfig& config, int ranks) {
  std::vector<ParallelConfig> fitting;
  for (int64_t fsdp = 1; fsdp <= ranks; ++fsdp) {
    ParallelConfig layout = config.parallel;
    layout.fsdp = fsdp;
    layout.dp = ranks / (fsdp * layout.tp * layout.pp);
    if (layout.ranks() != ranks || (fsdp > 1 && config.parallel.fsdp == 1)) continue;
    try {
      DataShard::of(config.train, layout.dp * layout.fsdp, 0);
      fitting.push_back(layout);
    } catch (const Error&) {  // the batch does not fit this layout
    }
  }
  std::string text;
  for (const ParallelConfig& layout : fitting) text += (text.empty() ? "" : ", or ") + layout.to_string();
  return text.empty() ? "" : fmt::format("; what fits {} is {}", ranks, text);
}

PipelineShape pipeline_shape(const ParallelConfig& config, int64_t micros) {
  return {
      .kind = config.schedule, .ranks = degree(config.pp), .chunks = degree(config.chunks), .micros = micros};
}

void check_pipeline(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pp == 1) return;
  const DataShard data_shard = DataShard::of(config.train, parallel.dp * parallel.fsdp, 0);
  pipeline_shape(parallel, data_shard.micros(config.train.grad_accum)).validate();
  for (const BatchStage& stage : config.train.batch_ramp)
    pipeline_shape(parallel, data_shard.micros(stage.micro_batches)).validate();
  plan_stages(config.model, parallel, {1, 1, 1});
}

}  // namespace

MeshShape mesh_shape(const ParallelConfig& config) {
  return {.pp = degree(config.pp),
          .dp_replicate = degree(config.dp),
          .dp_shard = degree(config.fsdp),
          .tp = degree(config.tp)};
}

void check_layout(const RunConfig& config, int ranks) {
  const ParallelConfig& wanted = config.parallel;
  if (wanted.ranks() == ranks) return check_pipeline(config);
  fail(ErrorKind::kUsage,
       "parallel: {} needs {} rank{}, but {} {} started; start it with mpirun -n {} (or srun){}",
       wanted.to_string(), wanted.ranks(), wanted.ranks() == 1 ? "" : "s", ranks, ranks == 1 ? "was" : "were",
       wanted.ranks(), nearest_layouts(config, ranks));
}

MeshParts::Groups MeshParts::split_groups(Communicator& world, const Mesh& mesh) {
  Groups groups;
  groups.data = world.split(mesh.place.tp_rank, world.rank(), "data");
  groups.weights = world.split(mesh.place.replica, world.rank(), "weights");
  groups.update =
      world.split(mesh.place.stage * mesh.shape.dp_replicate + mesh.place.replica, world.rank(), "update");
  return groups;
}

MeshParts::MeshParts(Communicator& world, Mesh& mesh) : MeshParts(world, mesh, split_groups(world, mesh)) {}

MeshParts::MeshParts(Communicator& world, Mesh& mesh, Groups groups)
    : world_(world),
      mesh_(mesh),
      groups_(std::move(groups)),
      all_(world),
      data_(*groups_.data),
      weights_(*groups_.weights) {
  if (mesh.tp->size() > 1) tensor_ = std::make_unique<TensorRegion>(*mesh.tp);
}

TimeLimit& MeshParts::time_limit() {
  TimeLimit* limit = world_.time_limit();
  return limit ? *limit : TrainerParts::time_limit();
}

std::unique_ptr<TrainerParts> MeshParts::planned() const {
  return std::make_unique<PlannedMeshParts>(mesh_.shape, world_.rank());
}

PlannedMeshParts::PlannedMeshParts(const MeshShape& shape, int rank)
    : PlannedMesh(shape, rank), MeshParts(*world, mesh, [&] {
        const auto [stage, replica, shard, tp_rank] = mesh.place;
        Groups groups;
        groups.data = planned_communicator("data", rank / shape.tp, shape.size() / shape.tp);
        groups.weights =
            planned_communicator("weights", (stage * shape.dp_shard + shard) * shape.tp + tp_rank,
                                 shape.size() / shape.dp_replicate);
        groups.update = planned_communicator("update", shard * shape.tp + tp_rank, shape.dp_shard * shape.tp);
        return groups;
      }()) {}

TensorParallel MeshParts::tensor_parallel(const RunConfig& config) {
  const TensorParallel tp = ingot::tensor_parallel(*mesh_.tp, config.parallel.splits_tokens);
  tp.validate(config.model.resolved());
  const int64_t tokens = this->data_shard(config.train).batch_size * config.model.context;
  if (tp.splits_tokens && tokens % tp.count != 0)
    fail(ErrorKind::kUsage,
         "parallel.sequence_parallel: the {} tokens of a rank's micro-batch must be a multiple of "
         "parallel.tp = {}; change model.context or train.batch_size, or set it to false",
         tokens, tp.count);
  return tp;
}

TrainingStore& MeshParts::make_store(const ParamList& list, const RunConfig& config, Stream& stream) {
  backing_ = stream.backing;
  const bool is_staged = mesh_.pp->size() > 1;
  if (is_staged) {
    plan_ = plan_stages(config);
    own_list_ = list.keeping([&](int unit) { return plan_.keeps(mesh_.pp->rank(), unit); });
  }
  TrainingStore* store = &make_parts(is_staged ? own_list_ : list, config, stream);
  if (tensor_) {
    tensor_store_ = std::make_unique<TensorStore>(*store, *mesh_.tp);
    store = tensor_store_.get();
  }
  if (!is_staged) return *store;
  pipeline_store_ = std::make_unique<PipelineStore>(list, *store, plan_, *mesh_.pp);
  return *pipeline_store_;
}

// All ranks use one plan, from the costs of the units on rank 0.
StagePlan MeshParts::plan_stages(const RunConfig& config) {
  const ModelConfig model = config.model.resolved();
  if (backing_ == Backing::kAddresses)
    return ingot::plan_stages(model, config.parallel, nominal_unit_costs(model));
  std::vector<double> costs(3);
  if (world_.rank() == 0)
    costs = measure_unit_costs(config, model, data_shard(config.train).batch_size, mesh_.tp->size());
  all_.sum(costs);
  return ingot::plan_stages(model, config.parallel, costs);
}

Stages* MeshParts::make_stages(const Transformer& model, const RunConfig& config) {
  if (!pipeline_store_) return nullptr;
  const DataShard data = data_shard(config.train);
  pipeline_ = std::make_unique<Pipeline>(
      model,
      PipelineConfig{.shape = pipeline_shape(config.parallel, data.micros(config.train.grad_accum)),
                     .plan = plan_,
                     .recompute = config.activations,
                     .B = data.batch_size,
                     .T = config.model.context,
                     .backing = backing_},
      *mesh_.pp);
  return pipeline_.get();
}

UpdateComm* MeshParts::update_comm(const RunConfig& config) {
  const bool is_on_device = config.train.device == Device::kCuda;  // every replica makes every update there
  if (is_on_device || groups_.update->size() * mesh_.replicate->size() == 1) return nullptr;
  update_ =
      std::make_unique<DistributedMuon>(*groups_.update, *mesh_.replicate, config.parallel.muon_payload);
  return update_.get();
}

Communicator& MeshParts::gradient_group(Stream& stream) {
  if (stream.device == Device::kCpu || stream.backing == Backing::kAddresses) return *mesh_.dp;
  device_dp_ = device_group(*mesh_.dp, stream);
  return *device_dp_;
}

// Makes the store of this rank's shards.
TrainingStore& MeshParts::make_parts(const ParamList& list, const RunConfig& config, Stream& stream) {
  const ParallelConfig& parallel = config.parallel;
  if (mesh_.shard->size() > 1) {
    fsdp_ = std::make_unique<FsdpStore>(
        list, *mesh_.shard, *mesh_.replicate,
        FsdpConfig{.compute = config.precision.compute, .keeps_units = parallel.keeps_units}, stream);
    return *fsdp_;
  }
  resident_ = std::make_unique<ResidentStore>(list, config.precision.compute, true, config.precision.master,
                                              config.train.device, stream.backing);
  if (mesh_.dp->size() == 1) return *resident_;
  ddp_ =
      std::make_unique<DdpStore>(*resident_, gradient_group(stream),
                                 DdpConfig{.bucket_bytes = parallel.bucket_mb << 20,
                                           .payload = parallel.payload,
                                           .payload_ends = parallel.payload_ends.value_or(parallel.payload),
                                           .has_error_feedback = parallel.has_error_feedback},
                                 stream);
  return *ddp_;
}

}  // namespace ingot
