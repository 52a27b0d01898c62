// Whole training steps under every activation checkpointing policy, timed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

// Times whole steps on random tokens under every activation checkpointing policy; each round runs one step
// of each.
struct CheckpointingBench {
  struct Row {
    std::string policy;
    uint64_t activation_bytes = 0;  // arena size for one micro-batch
    double step_ms = 0;             // median
    double recompute_ms = 0;        // time in a step: recomputed products, attention and norms (median)
    double time_change = 0;         // relative to keeping everything, in the same round (median)
    double time_change_low = 0, time_change_high = 0;  // 95 % interval of that median
    double bytes_change = 0;                           // activation bytes relative to keeping everything
  };
  std::string preset, dtype;
  int64_t rounds = 0, layers = 0, batch_size = 0, context = 0;
  std::vector<Row> rows;  // the first keeps everything
};
CheckpointingBench bench_checkpointing(const RunConfig& config, int64_t rounds);

}  // namespace ingot
