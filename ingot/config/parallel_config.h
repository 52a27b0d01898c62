// How many ranks train one model, and how they share it (parallel/mesh_parts.h). Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ingot/core/dtype.h"

namespace ingot {

// The order of micro-batches in a pipeline (parallel/pipeline_schedule.h).
enum class PipelineKind { kGpipe, kOneFOneB, kInterleaved };

struct ParallelConfig {
  int64_t dp = 1;             // replicas of the model, each with its share of a step's samples
  int64_t fsdp = 1;           // ranks that share one replica's weights, gradients and optimizer state
  int64_t tp = 1;             // ranks that share every product
  bool splits_tokens = true;  // tp: these ranks split the tokens of norms and the residual stream too
  int64_t pp = 1;             // ranks that have a replica's units in stages between them
  PipelineKind schedule = PipelineKind::kOneFOneB;
  int64_t chunks = 1;          // pp: stages of each of these ranks; above 1: interleaved
  int64_t bucket_mb = 25;      // of f32 gradients that travel together
  DType payload = DType::f32;  // in which gradients travel: f32, bf16 or f16; they are added in f32
  std::optional<DType> payload_ends = {};  // of those of embedding and head; none: the same
  bool has_error_feedback = false;         // what rounding them took away is sent a step later
  bool keeps_units = false;          // fsdp: weights are gathered once a step, and not given up after use
  DType muon_payload = DType::bf16;  // in which Muon's directions travel: bf16 or f32
  // The limit of an operation between ranks; a later one ends the run. Absent: it follows what the run does
  // (core/time_limit.h).
  std::optional<double> timeout_s = {};
  double delay_s = 0;     // that each of them takes at least: shows what overlap hides
  bool verifies = false;  // ranks compare what they are about to do together

  int64_t ranks() const { return dp * fsdp * tp * pp; }
  std::string to_string() const;  // "dp=4", "dp=2 fsdp=2": what is not 1; "dp=1"
  void validate() const;          // kUsage error
};

}  // namespace ingot
