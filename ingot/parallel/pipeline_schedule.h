// Pipeline parallelism as lists of operations: what each rank does in a step of m micro-batches. One executor
// runs them, and the simulation (pipeline_simulation.h) runs the same lists.
//
// Of p ranks with v chunks each, rank r has stages r, p + r, 2p + r, ...: stage s passes activations on to
// s + 1 and gradients back to s - 1. On every stage micro-batches go forward, and go backward, in order
// 0 .. m - 1, so gradients add up as they do on one rank.
//
//   kGpipe        all forward, then all backward (Huang et al. 2019, arXiv:1811.06965); m in flight
//   kOneFOneB     rank r runs p - 1 - r forward, then one forward and one backward in turn
//                 (Narayanan et al. 2021, arXiv:2104.04473); p - r in flight
//   kInterleaved  the same with v chunks, p micro-batches through a chunk before the next one's turn; 1/v of
//                 the bubble, v times the messages, 2 (p - r - 1) + (v - 1) p + 1 chunks in flight
//
// Stages of equal cost idle for (p - 1) / (v m + p - 1) of the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ingot/config/parallel_config.h"

namespace ingot {

struct PipelineShape {
  PipelineKind kind = PipelineKind::kOneFOneB;
  int ranks = 1;       // p
  int chunks = 1;      // v, stages of one rank
  int64_t micros = 1;  // m
  int stages() const { return ranks * chunks; }

  // Throws a kUsage error that names the key, the rule and the nearest valid value.
  void validate() const;
  // Micro-batches (interleaved: chunks of micro-batches) whose activations rank r keeps at most.
  int64_t in_flight(int rank) const;
  // Fraction of a step in which a rank idles, stages of equal cost and messages of none.
  double bubble() const;
};

struct PipelineOp {
  // Receives wait for their message. Sends do not wait; their memory is free again once it was received.
  enum class Kind {
    kReceiveActivation,
    kForward,
    kSendActivation,
    kReceiveGradient,
    kBackward,
    kSendGradient
  };
  Kind kind = Kind::kForward;
  int64_t micro = 0;  // within the step
  int chunk = 0;      // of this rank
  bool operator==(const PipelineOp&) const = default;
};

// The step of one rank. REQUIRES: shape valid, 0 <= rank < shape.ranks.
std::vector<PipelineOp> pipeline_schedule(const PipelineShape& shape, int rank);

// What one rank does with micro-batch `micro` if that passes through all stages alone.
std::vector<PipelineOp> lone_micro_schedule(const PipelineShape& shape, int rank, int64_t micro);

// Micro-batches that each chunk of a rank has in flight at most.
std::vector<int64_t> micros_in_flight(const std::vector<PipelineOp>& list, int chunks);

// First unit of each stage, and the number of units: consecutive units to `stages` stages, at least one each,
// so that the dearest stage is as cheap as can be; of equally good splits the one whose stages fill up from
// the last. costs: of each unit, measured, >= 0. Throws a kUsage error if there are fewer units than stages.
std::vector<int> split_units(std::span<const double> costs, int stages);

}  // namespace ingot
