// How many ranks train one model, and how they share it (parallel/mesh_parts.h). Plain data.
#pragma once

#include <cstdint>
#include <string>

#include "ingot/core/dtype.h"

namespace ingot {

struct ParallelConfig {
  int64_t dp = 1;                    // replicas of the model, each with its share of a step's samples
  int64_t fsdp = 1;                  // ranks that share one replica's weights, gradients and optimizer state
  int64_t tp = 1;                    // ranks that share every product
  bool splits_tokens = true;         // tp: these ranks split the tokens of norms and the residual stream too
  int64_t pp = 1;                    // stages of the model
  int64_t bucket_mb = 25;            // of f32 gradients that travel together
  DType payload = DType::f32;        // in which gradients travel: f32 or bf16; they are added in f32
  bool has_error_feedback = false;   // what rounding to bf16 took away is sent a step later
  bool keeps_units = false;          // fsdp: weights are gathered once a step, and not given up after use
  DType muon_payload = DType::bf16;  // in which Muon's directions travel: bf16 or f32
  double timeout_s = 600;            // of an operation between ranks; a later one ends the run

  int64_t ranks() const { return dp * fsdp * tp * pp; }
  std::string to_string() const;  // "dp=4", "dp=2 fsdp=2": what is not 1; "dp=1"
  void validate() const;          // kUsage error
};

}  // namespace ingot
