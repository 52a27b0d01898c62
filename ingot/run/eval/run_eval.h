// evaluate_run() computes the losses on a run's validation texts: one stream, or every source of a mixture,
// and the further ones of data.val_sets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/run/data/run_data.h"
#include "ingot/tasks/task_set.h"
#include "ingot/train/evaluate.h"

namespace ingot {

// With a mixture, loss, top1 and bits_per_byte are those of text of which each source has its share of the
// tokens; text_tokens is the sum. Bits per byte are 0 if the bytes of one source are unknown. The texts of
// data.val_sets do not count in it.
struct RunEval {
  EvalResult result;
  std::vector<std::pair<std::string, double>> losses;  // with the names of the sources, then of the sets
  std::vector<TaskResult> tasks = {};                  // the results of eval.tasks

  // Returns the loss of the text that eval.best_by names; of "" the result's.
  double loss_of(const std::string& name) const;
};

// Evaluates one stream on at most max_tokens tokens, as Trainer::evaluate.
using EvaluateStream = std::function<EvalResult(const TokenSource& text, int64_t max_tokens,
                                                const EvalProgress& should_continue)>;

// max_tokens: of all sources together, divided by their shares, and of each set; 0 means all. An evaluation
// that should_continue ends has no usable result (EvalResult::is_complete).
RunEval evaluate_run(const RunData& data, int64_t max_tokens, const EvaluateStream& evaluate,
                     const EvalProgress& should_continue = {});

}  // namespace ingot
