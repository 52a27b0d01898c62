// loss.svg and report.html of a run, from what its folder holds.
#pragma once

#include "ingot/data/corpus.h"
#include "ingot/train/config.h"
#include "ingot/train/console.h"
#include "ingot/train/run_folder.h"

namespace ingot {

// loss.svg: training and validation loss from metrics.jsonl.
void write_loss_plot(const RunFolder& folder);

// loss.svg and report.html: curves, summary, samples, configuration, machine, next commands. For a validation
// text of up to 16 MB, gzip's and xz's bits per byte of the same bytes are measured, printed and reported.
void write_run_report(const RunFolder& folder, const RunConfig& config, const Documents& val_documents,
                      Console& console);

}  // namespace ingot
