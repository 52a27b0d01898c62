// RunLog: what a run writes down about itself as it goes: a line of metrics.jsonl for every step, evaluation
// and event, and the same numbers as TensorBoard scalars where they are not too many.
//
// Fields of a step's line: step (1 after the first), tokens, loss (nats), top1, lr, momentum, grad_norm
// (before clipping), step_tokens, step_ms, tokens_per_s, mfu, loader_wait_ms (exposed), and ms_PHASE for
// every phase of the trace (phases nest: forward contains head; a space in its name is an underscore). Where
// the loss was checked: raw_ce_fp32 and raw_ce_gap (nn/loss_head.h), and raw_forward_gap
// (train/forward_check.h); in f16 loss_scale; with 8-bit optimizer states non_finite_gradients, if there were
// any; with FP8 the fractions fp8_saturated and fp8_underflowed of what was cast. A part of a run begins with
// bytes_ARENA.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/core/trace.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/formats/tensorboard.h"
#include "ingot/nn/fp8_state.h"
#include "ingot/optim/optimizer.h"
#include "ingot/run/record/patient_log.h"
#include "ingot/run/record/run_folder.h"

namespace ingot {

class RunLog {
 public:
  // first_step_again: of a resumed run, for TensorBoard, which rank 0 alone writes for.
  RunLog(const RunFolder& folder, std::optional<int64_t> first_step_again);

  // For TensorBoard: the configuration as text and as the run's row of the HPARAMS page; at the end of a
  // completed run that it is complete; samples as text.
  void write_config(const RunConfig& config);
  void write_completed();
  void write_samples(int64_t step, const std::string& text);

  // One line: "step" and the fields.
  void write(int64_t step, const std::vector<MetricsField>& fields, bool to_tensorboard);
  // ms_PHASE: what each phase has taken since begin_step.
  void begin_step(const Trace& trace);
  void add_phases(const Trace& trace, std::vector<MetricsField>& fields) const;

  // One line of params.jsonl per parameter, and the same for TensorBoard under params/update_ratio/NAME and
  // so on.
  void write_params(int64_t step, std::span<const ParamStats> stats);

  // One line: fp8_saturated/NAME, fp8_underflowed/NAME (values) and fp8_amax/NAME of every tensor that the
  // step cast to FP8; nothing without any.
  void write_fp8(int64_t step, const Fp8State& fp8);

  // Evaluations that the log holds.
  struct Evaluations {
    double best_loss = std::numeric_limits<double>::infinity();
    int64_t last_step = -1;  // -1: there is none
  };
  // Forgets what was written about later steps. Returns the evaluations that are left.
  Evaluations truncate_after(int64_t step);
  // Flushes to the disk. kDisk error while lines wait in memory, because they cannot be written.
  void sync() {
    metrics_.sync();
    params_.sync();
  }
  // Why lines wait in memory; said once for each time that they begin to.
  std::optional<std::string> take_trouble();

 private:
  void flush_tensorboard();

  std::filesystem::path path_;
  PatientLog metrics_, params_;
  std::optional<TensorboardWriter> tensorboard_;
  std::vector<double> phase_s_;  // before the step, in order of the trace's phases
};

}  // namespace ingot
