// RunEvaluator makes the evaluations of a run: the losses on its validation texts and the scores of its
// tasks.
#pragma once

#include <cstdint>
#include <optional>

#include "ingot/run/progress.h"
#include "ingot/run/run_saver.h"
#include "ingot/run/run_services.h"

namespace ingot {

class RunEvaluator {
 public:
  // Borrows all arguments.
  RunEvaluator(const RunSetup& setup, RunServices& services, Progress& progress, RunSaver& saver)
      : setup_(setup), services_(services), progress_(progress), saver_(saver) {}

  // Evaluates the model, prints and logs what it found, and passes the loss that eval.best_by names to the
  // saver. All ranks call it alike. Returns false if an interruption ended it without a result.
  bool evaluate();
  // Returns true if the last eval.patience evaluations did not lower the loss.
  bool is_out_of_patience() const;

 private:
  int64_t eval_tokens() const;
  std::optional<RunEval> measure();

  const RunSetup& setup_;
  RunServices& services_;
  Progress& progress_;
  RunSaver& saver_;
};

}  // namespace ingot
