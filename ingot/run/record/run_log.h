// RunLog writes a run's log: a line of metrics.jsonl for every step, evaluation and event, and the same
// numbers as TensorBoard scalars, though not for every step.
//
// A step's line has these fields: step (1 for the first), tokens, loss (nats), top1, lr, momentum,
// grad_norm (before clipping), step_tokens, step_ms, tokens_per_s, mfu, loader_wait_ms (exposed), and
// ms_PHASE for every phase of the trace (phases nest: forward contains head; a space in a name becomes an
// underscore). If the loss was checked: raw_ce_fp32 and raw_ce_gap (nn/loss_head.h), and raw_forward_gap
// (train/forward_check.h). In the steps that the console
// prints: rss_bytes, the resident memory of the process. In f16: loss_scale. In a pipeline: bubble. With
// head.filter: head_filtered. With 8-bit optimizer states: non_finite_gradients, if there were any. With FP8:
// fp8_saturated and fp8_underflowed, fractions of the values that were cast. The first line after a start or
// a resume has bytes_ARENA.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/core/trace.h"
#include "ingot/formats/chart/bounded_series.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/formats/tensorboard.h"
#include "ingot/nn/fp8_state.h"
#include "ingot/optim/optimizer.h"
#include "ingot/run/record/buffered_log.h"
#include "ingot/run/record/lowest_loss.h"
#include "ingot/run/record/run_folder.h"

namespace ingot {

class RunLog {
 public:
  // first_step_again: the first step of a resumed run, for TensorBoard. Only rank 0 writes TensorBoard
  // files.
  RunLog(const RunFolder& folder, std::optional<int64_t> first_step_again);

  // For TensorBoard only: write_config writes the configuration as text and as the run's row of the HPARAMS
  // page, write_completed marks the run there as complete, and write_samples writes samples as text.
  void write_config(const RunConfig& config);
  void write_completed();
  void write_samples(int64_t step, const std::string& text);

  // Writes one line: "step" and the fields.
  void write(int64_t step, const std::vector<MetricsField>& fields, bool to_tensorboard);
  // add_phases adds ms_PHASE, the time that each phase took since begin_step.
  void begin_step(const Trace& trace);
  void add_phases(const Trace& trace, std::vector<MetricsField>& fields) const;

  // Writes one line of params.jsonl per parameter, and the same numbers to TensorBoard as
  // params/update_ratio/NAME and so on.
  void write_params(int64_t step, std::span<const ParamStats> stats);

  // Writes one line with fp8_saturated/NAME, fp8_underflowed/NAME (numbers of values) and fp8_amax/NAME of
  // every tensor that the step cast to FP8; nothing if there are none.
  void write_fp8(int64_t step, const Fp8State& fp8);

  // The losses by step, in bounded memory.
  struct LossCurves {
    BoundedSeries train = BoundedSeries(), validation = BoundedSeries();
  };
  const LossCurves& losses() const { return losses_; }

  // A summary of the evaluations in the log.
  struct Evaluations {
    double best_loss = std::numeric_limits<double>::infinity();
    LowestLoss lowest;
    int64_t last_step = -1;            // -1 if there is none
    std::map<int64_t, double> losses;  // by step
  };
  // Removes what was written about later steps. Returns the remaining evaluations, with the losses of the
  // text that eval.best_by names.
  Evaluations truncate_after(int64_t step, const EvalConfig& eval);
  // Flushes to the disk. Throws a kDisk error while lines that cannot be written wait in memory.
  void sync() {
    metrics_.sync();
    params_.sync();
  }
  // Returns why lines wait in memory, once each time that they begin to wait; otherwise nullopt.
  std::optional<std::string> take_error();

 private:
  void flush_tensorboard();

  std::filesystem::path path_;
  BufferedLog metrics_, params_;
  std::optional<TensorboardWriter> tensorboard_;
  LossCurves losses_;
  std::vector<double> phase_s_;  // before the step, in the order of the trace's phases
};

}  // namespace ingot
