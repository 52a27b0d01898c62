#include "ingot/parallel/parallelize.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ingot/comm/device_group.h"
#include "ingot/parallel/distributed_muon.h"
#include "ingot/parallel/fsdp.h"
#include "ingot/parallel/pipeline.h"
#include "ingot/parallel/replica_sum.h"
#include "ingot/parallel/shard_sum.h"
#include "ingot/parallel/tensor.h"
#include "ingot/train/local_executor.h"
#include "ingot/train/recompute_choice.h"

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
          .tp = degree(config.tp),
          .order = config.order};
}

void check_layout(const RunConfig& config, int ranks) {
  const ParallelConfig& wanted = config.parallel;
  if (wanted.ranks() == ranks) return check_pipeline(config);
  fail(ErrorKind::kUsage,
       "parallel: {} needs {} rank{}, but {} {} started; start it with mpirun -n {} (or srun){}",
       wanted.to_string(), wanted.ranks(), wanted.ranks() == 1 ? "" : "s", ranks, ranks == 1 ? "was" : "were",
       wanted.ranks(), nearest_layouts(config, ranks));
}

namespace {

// Returns the group for tensors of the stream's device: one that is made and kept in `place`, or the group
// itself on the CPU and in plans.
Communicator& group_for(Communicator& group, Stream& stream, std::unique_ptr<Communicator>& place) {
  if (stream.device == Device::kCpu || stream.backing != Backing::kMemory || group.size() == 1) return group;
  place = device_group(group, stream);
  return *place;
}

Stream stream_for(Device device, Backing backing) {
  if (backing == Backing::kMemory) return make_stream(device);
  Stream stream;
  stream.device = device;
  stream.backing = backing;
  return stream;
}

// Returns this rank's shard of every matrix product.
TensorParallel tensor_shard(const RunConfig& config, const Mesh& mesh, const DataShard& data_shard) {
  const TensorParallel tp = tensor_parallel(*mesh.tp, config.parallel.splits_tokens);
  tp.validate(config.model.resolved());
  const int64_t tokens = data_shard.batch_size * config.model.context;
  if (tp.splits_tokens && tokens % tp.count != 0)
    fail(ErrorKind::kUsage,
         "parallel.sequence_parallel: the {} tokens of a rank's micro-batch must be a multiple of "
         "parallel.tp = {}; change model.context or train.batch_size, or set it to false",
         tokens, tp.count);
  return tp;
}

// All ranks use one plan, from the costs of the units on rank 0.
StagePlan agree_on_stages(const RunConfig& config, const Layout& rank, const std::vector<double>& known) {
  const Mesh& mesh = *rank.mesh;
  const ModelConfig model = config.model.resolved();
  if (!known.empty()) return plan_stages(model, config.parallel, known);
  if (config.parallel.counts_costs || rank.stream->backing == Backing::kAddresses)
    return plan_stages(model, config.parallel, nominal_unit_costs(model));
  std::vector<double> costs(3);
  if (mesh.world->rank() == 0)
    costs = measure_unit_costs(config, model, rank.data_shard.batch_size, mesh.tp->size(), *rank.stream);
  mesh.world->sum(costs);
  return plan_stages(model, config.parallel, costs);
}

// Returns the group of the tensor-parallel ranks with this rank's kv-heads; null if no other rank has these.
Communicator* find_head_group(Layout& rank) {
  Communicator& tp = *rank.mesh->tp;
  const int holders = rank.model->tp().holders(rank.model->config().kv_heads, 1);
  if (holders == 1) return nullptr;
  rank.head_ranks = tp.split(tp.rank() / holders, tp.rank(), "kv-heads");
  return &group_for(*rank.head_ranks, *rank.stream, rank.head_group);
}

// Returns the group of the first and the last stage if both hold a tied table and this rank has one of them,
// otherwise null.
Communicator* find_end_group(const StagePlan& plan, Layout& rank) {
  Communicator& pp = *rank.mesh->pp;
  if (!plan.is_tied || pp.size() == 1) return nullptr;
  const bool is_end = pp.rank() == 0 || pp.rank() == pp.size() - 1;
  rank.end_ranks = pp.split(is_end ? 0 : 1, pp.rank(), "pp ends");
  return is_end ? &group_for(*rank.end_ranks, *rank.stream, rank.end_group) : nullptr;
}

Replicas among(const Communicator& group) { return {group.size(), group.rank()}; }

// Makes the memory of this rank's weights, with the sum over replicas.
std::unique_ptr<TrainingStore> make_memory(const RunConfig& config, Layout& rank) {
  const Mesh& mesh = *rank.mesh;
  const ParallelConfig& parallel = config.parallel;
  const ParamList& list = rank.stage_list ? *rank.stage_list : rank.model->params();
  Stream& stream = *rank.stream;
  const GradientPayload payload{.blocks = parallel.payload,
                                .ends = parallel.payload_ends.value_or(parallel.payload),
                                .has_error_feedback = parallel.has_error_feedback};
  if (mesh.shard->size() == 1) {
    auto whole = std::make_unique<ResidentStore>(list, config.precision.compute, true,
                                                 config.precision.master, stream.device, stream.backing);
    if (mesh.dp->size() > 1)
      whole->add(replica_sum(*whole, group_for(*mesh.dp, stream, rank.gradient_group),
                             {.bucket_bytes = parallel.bucket_mb << 20, .payload = payload}, stream));
    return whole;
  }
  const bool reads_masters =
      config.head.precision == HeadPrecision::kF32 && config.precision.compute != DType::f32;
  const FsdpConfig fsdp{.compute = config.precision.compute,
                        .has_f32_masters = config.precision.master != Masters::kNone,
                        .keeps_units = parallel.keeps_units,
                        .f32_unit = reads_masters ? list[rank.model->head_weight()].unit : -1,
                        .payload = payload,
                        .has_replicas = mesh.replicate->size() > 1};
  auto shards =
      std::make_unique<FsdpStore>(list, group_for(*mesh.shard, stream, rank.shard_group), fsdp, stream);
  if (fsdp.has_replicas)
    shards->add(std::make_unique<ReplicaSum>(group_for(*mesh.replicate, stream, rank.replica_group),
                                             shards->replica_buckets(), stream));
  return shards;
}

// Makes the store of this rank's weights, those of its stages. Its reductions run in the order in which they
// are added.
void make_store(const RunConfig& config, const StagePlan& plan, Layout& rank) {
  const Mesh& mesh = *rank.mesh;
  if (mesh.pp->size() > 1)
    rank.stage_list = std::make_unique<ParamList>(
        rank.model->params().keeping([&](int unit) { return plan.keeps(mesh.pp->rank(), unit); }));
  rank.params = make_memory(config, rank);
  StoreRanks ranks{.data = among(*mesh.replicate), .shards = among(*mesh.shard), .tensor = among(*mesh.tp)};
  if (mesh.pp->size() > 1)
    ranks.is_owner = [plan, stage = mesh.pp->rank()](int unit) { return plan.owner(unit) == stage; };
  rank.params->place(rank.model->params(), std::move(ranks));
  if (Communicator* heads = find_head_group(rank)) rank.params->add(shared_heads_sum(*rank.params, *heads));
  if (Communicator* ends = find_end_group(plan, rank)) rank.params->add(tied_sum(*rank.params, plan, *ends));
}

// All ranks choose by the same times of a block, which rank 0 measures.
BlockTimes agree_on_block_times(const RunConfig& config, const Layout& rank) {
  if (!needs_block_times(config.activations) || rank.stream->backing == Backing::kAddresses)
    return nominal_block_times();
  const Mesh& mesh = *rank.mesh;
  BlockTimes times;
  if (mesh.world->rank() == 0)
    times = measure_block_times(config, config.model.resolved(), rank.data_shard.batch_size, mesh.tp->size(),
                                *rank.stream);
  return agreed_block_times(times, *mesh.world);
}

// Returns true if no group is there, or if CUDA graphs can hold its collectives.
bool can_capture(const std::unique_ptr<Communicator>& group) { return !group || group->can_be_captured(); }

// The passes run as graphs only if their messages need no host (comm/device_group.h) on any rank: ranks with
// graphs gather weights in another order than others.
GraphUse graph_use(const RunConfig& config, const Layout& rank) {
  GraphUse use{.has_graphs = config.train.has_graph, .differs_last = rank.mesh->dp->size() > 1};
  if (!use.has_graphs || rank.stream->backing != Backing::kMemory) return use;
  Communicator& world = *rank.mesh->world;
  use.has_graphs = !world.is_any(!can_capture(rank.tensor_group) || !can_capture(rank.shard_group));
  use.holds_last = !world.is_any(!can_capture(rank.gradient_group) || !can_capture(rank.replica_group));
  return use;
}

std::unique_ptr<Executor> make_executor(const RunConfig& config, const StagePlan& plan, Layout& rank) {
  const int64_t micros = rank.data_shard.micros(config.train.grad_accum);
  const BatchShape& shape = rank.batch_shape;
  const Backing backing = rank.stream->backing;
  const GraphUse graphs = graph_use(config, rank);
  if (rank.mesh->pp->size() > 1)
    return std::make_unique<Pipeline>(*rank.model,
                                      PipelineConfig{.shape = pipeline_shape(config.parallel, micros),
                                                     .plan = plan,
                                                     .recompute = config.activations,
                                                     .block_times = agree_on_block_times(config, rank),
                                                     .batch = shape,
                                                     .has_graphs = graphs.has_graphs && graphs.holds_last},
                                      *rank.mesh->pp, *rank.stream);
  return std::make_unique<LocalExecutor>(
      *rank.model,
      LocalExecutorConfig{.shape = shape,
                          .recompute = choose_recompute(config, *rank.model, *rank.params, shape.batch,
                                                        *rank.mesh->world, *rank.stream),
                          .micros = micros,
                          .graphs = graphs,
                          .device = rank.stream->device,
                          .backing = backing});
}

bool needs_device_groups(const Layout& rank) {
  return rank.stream->device == Device::kCuda && rank.stream->backing == Backing::kMemory;
}

// Returns the group of all ranks for tensors on the device. Makes it if the gradients of no group come from
// all ranks.
Communicator* find_step_group(Layout& rank) {
  const int all = rank.mesh->world->size();
  if (!needs_device_groups(rank) || all == 1) return nullptr;
  for (const auto* group : {&rank.gradient_group, &rank.shard_group, &rank.replica_group})
    if (*group && (*group)->size() == all) return group->get();
  rank.world_group = device_group(*rank.mesh->world, *rank.stream);
  return rank.world_group.get();
}

// On a device, updates go through the groups of the gradients where these have the same ranks, because every
// group over NCCL takes memory of the device.
std::unique_ptr<UpdateComm> make_update(const RunConfig& config, Layout& rank) {
  const Mesh& mesh = *rank.mesh;
  Communicator *weights = mesh.update.get(), *replicas = mesh.replicate.get();
  if (needs_device_groups(rank)) {
    if (!rank.shard_group || mesh.tp->size() > 1)
      rank.update_group = device_group(*mesh.update, *rank.stream);
    if (!rank.replica_group && !rank.gradient_group)
      rank.replica_group = device_group(*mesh.replicate, *rank.stream);
    weights = rank.update_group ? rank.update_group.get() : rank.shard_group.get();
    replicas = rank.replica_group ? rank.replica_group.get() : rank.gradient_group.get();
  }
  return std::make_unique<DistributedMuon>(*weights, *replicas, config.parallel.muon_payload);
}

}  // namespace

Layout parallelize(const RunConfig& config, Mesh& mesh, Backing backing,
                   const std::vector<double>& unit_costs, const BlockExtension& extension) {
  Layout rank;
  rank.mesh = &mesh;
  rank.stream = std::make_unique<Stream>(stream_for(config.train.device, backing));

  // Data parallelism: the samples of this rank.
  rank.data_shard = DataShard::of(config.train, mesh.dp->size(), mesh.dp->rank());
  rank.batch_shape = {.batch = rank.data_shard.batch_size,
                      .context = config.model.context,
                      .vocab_size = config.model.vocab,
                      .document_mask = config.data.has_document_mask};

  // Tensor parallelism: this rank's shard of every matrix product.
  if (mesh.tp->size() > 1)
    rank.region = std::make_unique<TensorRegion>(group_for(*mesh.tp, *rank.stream, rank.tensor_group));
  else
    rank.region = std::make_unique<Region>();
  rank.model = std::make_unique<Transformer>(config.model.resolved(), config.precision.compute, config.head,
                                             config.precision.fp8,
                                             tensor_shard(config, mesh, rank.data_shard), extension);
  if (config.data.has_document_mask) rank.model->expect_documents();

  // Pipeline parallelism: this rank's units of the model.
  StagePlan plan;
  if (mesh.pp->size() > 1) plan = agree_on_stages(config, rank, unit_costs);

  // Sharding and replication of what is left, and the passes over it.
  make_store(config, plan, rank);
  rank.executor = make_executor(config, plan, rank);

  if (mesh.update->size() * mesh.replicate->size() > 1) rank.update_comm = make_update(config, rank);
  rank.step_group = find_step_group(rank);
  return rank;
}

void for_each_planned_store(const RunConfig& config,
                            const std::function<Mesh::MakeGroup(int rank)>& make_group,
                            const std::function<void(const Layout&, const StagePlan&)>& f) {
  const MeshShape shape = mesh_shape(config.parallel);
  const ModelConfig model = config.model.resolved();
  StagePlan plan;
  if (shape.pp > 1) plan = plan_stages(model, config.parallel, nominal_unit_costs(model));
  std::vector<std::unique_ptr<Transformer>> models(static_cast<size_t>(shape.tp));  // by tensor-parallel rank
  for (int rank = 0; rank < shape.size(); ++rank) {
    Mesh mesh = Mesh::planned(shape, rank, make_group(rank));
    Layout layout;
    layout.mesh = &mesh;
    layout.stream = std::make_unique<Stream>(stream_for(config.train.device, Backing::kAddresses));
    std::unique_ptr<Transformer>& own = models[static_cast<size_t>(mesh.place.tp_rank)];
    if (!own)
      own = std::make_unique<Transformer>(model, config.precision.compute, config.head, config.precision.fp8,
                                          tensor_parallel(*mesh.tp, config.parallel.splits_tokens));
    layout.model = std::move(own);
    make_store(config, plan, layout);
    f(layout, plan);
    layout.params.reset();
    own = std::move(layout.model);
  }
}

Layout parallelize(const RunConfig& config, Backing backing, const BlockExtension& extension) {
  auto alone = std::make_unique<Mesh>(Mesh::alone());
  Layout rank = parallelize(config, *alone, backing, {}, extension);
  rank.own_mesh = std::move(alone);
  return rank;
}

}  // namespace ingot
