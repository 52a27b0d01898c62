// loss.svg and report.html of a run, from what its folder holds.
#pragma once

#include <string>

#include "ingot/config/config.h"
#include "ingot/console/console.h"
#include "ingot/data/corpus.h"
#include "ingot/run/record/run_folder.h"

namespace ingot {

// loss.svg: training and validation loss from metrics.jsonl.
void write_loss_plot(const RunFolder& folder);

struct RunEnd {
  std::string status;                        // as in run.json
  std::string error = {};                    // what a failed run said
  const Documents* val_documents = nullptr;  // null: no yardsticks
};

// loss.svg and report.html of a run that has ended, in whatever way: curves, summary, samples, configuration,
// machine, provenance (from run.json, which has to be written before), next commands. For a validation text
// of up to 16 MB, gzip's and xz's bits per byte of the same bytes are measured, printed and reported. A
// report that cannot be written is a warning on the console: the run has ended as it has.
void write_run_report(const RunFolder& folder, const RunConfig& config, const RunEnd& end,
                      Console& console) noexcept;

}  // namespace ingot
