// ParallelConfig is plain data: the number of ranks that train one model, and how they divide it
// (parallel/parallelize.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ingot/core/dtype.h"
#include "ingot/core/mesh_axis.h"

namespace ingot {

// The order of micro-batches in a pipeline (parallel/pipeline_schedule.h).
enum class PipelineKind { kGpipe, kOneFOneB, kInterleaved };

struct ParallelConfig {
  int64_t dp = 1;                // replicas of the model; each computes its own samples of a step
  int64_t fsdp = 1;              // ranks that shard one replica's weights, gradients and optimizer state
  int64_t tp = 1;                // ranks that shard every linear (tensor parallelism)
  bool splits_tokens = true;     // tp: these ranks also shard the tokens of norms and residual stream
  MeshOrder order = kMeshOrder;  // which ranks are neighbours
  int64_t pp = 1;                // pipeline ranks; each has one or more stages of a replica
  PipelineKind schedule = PipelineKind::kOneFOneB;
  bool counts_costs = false;   // pp: stages are cut by multiply-adds and not by measured times
  int64_t chunks = 1;          // pp: stages per rank; more than 1 needs the interleaved schedule
  int64_t bucket_mb = 25;      // size of a bucket of f32 gradients
  DType payload = DType::f32;  // dtype in which gradients are sent: f32, bf16 or f16; sums are in f32
  std::optional<DType> payload_ends = {};  // the same for embedding and head; nullopt: as payload
  bool has_error_feedback = false;         // add the rounding error of sent gradients to the next step's
  bool keeps_units = false;                // fsdp: gather weights once per step and keep them after use
  DType muon_payload = DType::bf16;        // dtype in which Muon's update directions are sent: bf16 or f32
  // Limit in seconds for one operation between ranks; the run ends if it is exceeded. nullopt: the limit
  // follows what the run is doing (core/time_limit.h).
  std::optional<double> timeout_s = {};
  double delay_s = 0;     // minimum duration of each operation between ranks (for measuring overlap)
  bool verifies = false;  // before each operation, ranks compare its kind, name and size

  int64_t ranks() const { return dp * fsdp * tp * pp; }
  std::string to_string() const;  // the degrees above 1: "dp=2 fsdp=2"; "dp=1" if there are none
  void validate() const;          // kUsage error
};

}  // namespace ingot
