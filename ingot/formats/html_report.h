// report.html of a run: one file without scripts or anything from elsewhere; for screens, phones and paper.
#pragma once

#include <string>
#include <vector>

#include "ingot/formats/svg_plot.h"

namespace ingot {

struct ReportRow {
  std::string name = {}, value = {};
};

struct ReportSample {
  std::string caption = {};  // "step 2000, temperature 0.8"; may be empty
  std::string prompt = {}, text = {};
};

// Plain text everywhere: any bytes may stand in it. Empty parts are left out.
struct Report {
  std::string title = {}, subtitle = {};
  std::string notice = {};                 // at the top: how a run ended that was not completed
  std::vector<ReportRow> highlights = {};  // two to five large figures
  std::vector<LinePlot> curves = {};       // their sizes are set by the report
  std::vector<ReportSample> samples = {};
  std::vector<ReportRow> summary = {};
  std::string config = {};  // the resolved TOML
  std::vector<ReportRow> machine = {};
  std::vector<ReportRow> provenance = {};
  std::vector<std::string> commands = {};  // to try next
};

std::string render_html(const Report& report);

}  // namespace ingot
