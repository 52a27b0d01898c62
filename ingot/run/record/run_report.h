// Writes loss.svg and report.html of a run from the contents of its folder.
#pragma once

#include <string>

#include "ingot/config/config.h"
#include "ingot/console/console.h"
#include "ingot/data/corpus.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/record/run_log.h"

namespace ingot {

// Writes loss.svg: training and validation loss.
void write_loss_plot(const RunFolder& folder, const RunLog::LossCurves& losses);

struct RunEnd {
  std::string status;                        // as in run.json
  std::string error = {};                    // error of a failed run
  const Documents* val_documents = nullptr;  // null: no yardsticks
};

// Writes loss.svg and report.html of a run that has ended, whether or not it succeeded: curves, summary,
// samples, configuration, machine, provenance (from run.json, which must be written before) and next
// commands. For a validation text of up to 16 MB, it also measures the bits per byte of gzip and xz on the
// same bytes, prints and reports them. If the report cannot be written, it prints a warning on the console.
void write_run_report(const RunFolder& folder, const RunConfig& config, const RunEnd& end,
                      Console& console) noexcept;

}  // namespace ingot
