// RunLog: what a run writes down about itself as it goes: a line of metrics.jsonl for every step, evaluation
// and event, and the same numbers as TensorBoard scalars where they are not too many.
//
// Fields of a step's line: step (1 after the first), tokens, loss (nats), top1, lr, momentum, grad_norm
// (before clipping), step_tokens, step_ms, tokens_per_s, mfu, loader_wait_ms (exposed), and ms_PHASE for
// every phase of the trace (phases nest: forward contains head). Where the loss was checked: raw_ce_fp32 and
// raw_ce_gap (nn/loss_head.h); in f16 loss_scale; with 8-bit optimizer states non_finite_gradients, if there
// were any; with FP8 the fractions fp8_saturated and fp8_underflowed of what was cast. A
// part of a run begins with bytes_ARENA.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/core/trace.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/formats/tensorboard.h"
#include "ingot/nn/fp8_state.h"
#include "ingot/optim/optimizer.h"
#include "ingot/train/run_folder.h"

namespace ingot {

class RunLog {
 public:
  // first_step_again: of a resumed run, for TensorBoard, which rank 0 alone writes for.
  RunLog(const RunFolder& folder, std::optional<int64_t> first_step_again);

  // One line: "step" and the fields.
  void write(int64_t step, const std::vector<MetricsField>& fields, bool to_tensorboard);
  // ms_PHASE: what each phase has taken since begin_step.
  void begin_step(const Trace& trace);
  void add_phases(const Trace& trace, std::vector<MetricsField>& fields) const;

  // One line of params.jsonl per parameter, and the same for TensorBoard under update_ratio/NAME and so on.
  void write_params(int64_t step, std::span<const ParamStats> stats);

  // One line: fp8_saturated/NAME, fp8_underflowed/NAME (values) and fp8_amax/NAME of every tensor that the
  // step cast to FP8; nothing without any.
  void write_fp8(int64_t step, const Fp8State& fp8);

  // Forgets what was written about later steps. Returns the lowest validation loss that is left; infinity
  // without any.
  double truncate_after(int64_t step);
  void sync() {
    metrics_.sync();
    params_.sync();
  }

 private:
  std::filesystem::path path_;
  MetricsLog metrics_, params_;
  std::optional<TensorboardWriter> tensorboard_;
  std::vector<double> phase_s_;  // before the step, in order of the trace's phases
};

}  // namespace ingot
