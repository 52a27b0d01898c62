// Whole training steps on random tokens, timed. Reads and writes no files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/ops/kernel_report.h"

namespace ingot {

struct StepBench {
  std::string preset, dtype, engine;
  int64_t steps = 0, batch_size = 0, context = 0, parameters = 0;
  double start_s = 0;               // from the call to the begin of the first step
  double step_ms = 0;               // median
  double tokens_per_s = 0;          // at the median
  double matmul_ms = 0;             // mean per step, traced inside the steps
  double products_alone_ms = 0;     // median of the same products, timed by themselves in this run
  double evaluation_ms = 0;         // of a batch, between steps (median); 0 on a device, like the next two
  double evaluation_blocks_ms = 0;  // outside the head (median)
  double forward_blocks_ms = 0;     // of a micro-batch of those steps, forward outside the head (median)
  double gflops = 0;                // model FLOPs per second
  double peak_gflops = 0;           // rate of a large product, measured in this run; 0 if it was not
  std::optional<double> mfu;        // gflops / peak_gflops; nullopt if the steps were faster than the peak
  double data_sheet_gflops = 0;     // dense peak by the device's data sheet; 0 if it is unknown
  double data_sheet_mfu = 0;        // gflops / data_sheet_gflops
  double loss_first = 0, loss_last = 0;
  uint64_t peak_rss_bytes = 0;
  uint64_t device_bytes = 0;  // memory of the device that the steps took; 0 on the CPU
  std::vector<std::pair<std::string, double>> phases_ms;  // mean per step; nested phases are in both
  std::vector<std::pair<std::string, uint64_t>> arena_bytes;
  struct Launches {  // per step, as in cuda::LaunchCounts; 0 on the CPU
    double kernels = 0, libraries = 0, copies = 0, graphs = 0;
  } launches = {};
  std::string trace;  // Chrome trace of one more step, if requested (core/timeline.h)
  KernelReport kernels;
};
struct StepBenchOptions {
  int64_t steps = 20;
  bool wants_trace = false;
  bool times_products = true;  // after the steps, by themselves, and the peak; needs memory of its own
};
StepBench bench_step(const RunConfig& config, const StepBenchOptions& options);

}  // namespace ingot
