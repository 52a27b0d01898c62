// Pipeline parallelism as lists of operations: each list holds what one rank does in a step of m
// micro-batches.
//
// With p ranks of v chunks each, rank r has stages r, p + r, 2p + r, ...: stage s sends activations to s
// + 1 and gradients to s - 1. On every stage both the forward and the backward passes run in micro-batch
// order 0 .. m - 1, so gradients accumulate in the same order as on one rank.
//
//   kGpipe        all forward, then all backward (Huang et al. 2019, arXiv:1811.06965); m in flight
//   kOneFOneB     rank r runs p - 1 - r forward, then alternates one forward and one backward
//                 (Narayanan et al. 2021, arXiv:2104.04473); p - r in flight
//   kInterleaved  the same with v chunks; p micro-batches pass a chunk before the next chunk's turn; 1/v of
//                 the bubble, v times the messages, 2 (p - r - 1) + (v - 1) p + 1 chunks in flight
//
// With stages of equal cost, each rank idles for (p - 1) / (v m + p - 1) of the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ingot/config/parallel_config.h"

namespace ingot {

struct PipelineShape {
  PipelineKind kind = PipelineKind::kOneFOneB;
  int ranks = 1;       // p
  int chunks = 1;      // v, stages per rank
  int64_t micros = 1;  // m
  int stages() const { return ranks * chunks; }

  // Throws a kUsage error that names the key, the rule and the nearest valid value.
  void validate() const;
  // Fraction of a step in which a rank idles, if stages cost the same and messages cost nothing.
  double bubble() const;
};

struct PipelineOp {
  // A receive waits for its message. A send does not wait; its memory is free once the message was
  // received.
  enum class Kind {
    kReceiveActivation,
    kForward,
    kSendActivation,
    kReceiveGradient,
    kBackward,
    kSendGradient
  };
  Kind kind = Kind::kForward;
  int64_t micro = 0;  // index within the step
  int chunk = 0;      // chunk of this rank
  bool operator==(const PipelineOp&) const = default;
};

// Returns the operations of one rank in a step. REQUIRES: shape is valid, and 0 <= rank < shape.ranks.
std::vector<PipelineOp> pipeline_schedule(const PipelineShape& shape, int rank);

// Returns the operations of one rank if micro-batch `micro` is the only one that passes through the
// stages.
std::vector<PipelineOp> lone_micro_schedule(const PipelineShape& shape, int rank, int64_t micro);

// Returns the most micro-batches that each chunk of a rank has in flight.
std::vector<int64_t> micros_in_flight(const std::vector<PipelineOp>& list, int chunks);

// Splits the units into `stages` stages of consecutive units, at least one each, and returns the first
// unit of each stage followed by the number of units. Minimises the cost of the most expensive stage;
// among equally good splits it takes the one whose stages fill up from the last. costs: measured cost of
// each unit, >= 0. Throws a kUsage error if there are fewer units than stages.
std::vector<int> split_units(std::span<const double> costs, int stages);

}  // namespace ingot
