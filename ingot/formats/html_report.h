// report.html of a run, a sweep or a comparison: one self-contained file for screens, phones and paper. It
// loads nothing. Its curves are pictures, which its script replaces by interactive charts on a screen.
#pragma once

#include <string>
#include <vector>

#include "ingot/formats/chart/svg_plot.h"

namespace ingot {

struct ReportRow {
  std::string name = {}, value = {};
};

struct ReportSample {
  std::string caption = {};  // "step 2000, temperature 0.8"; may be empty
  std::string prompt = {}, text = {};
};

struct ReportTable {
  std::string heading = {}, remark = {};  // the remark is shown below the table
  std::vector<std::string> columns = {};
  std::vector<std::vector<std::string>> rows = {};
};

// All fields are plain text and may hold any bytes; they are escaped. Empty sections are left out.
struct Report {
  std::string title = {}, subtitle = {};
  std::string notice = {};                 // says at the top how a run ended that was not completed
  std::vector<ReportRow> highlights = {};  // two to five large figures
  std::vector<ReportTable> tables = {};
  std::vector<LinePlot> curves = {};  // the report sets their sizes
  std::vector<ReportSample> samples = {};
  std::vector<ReportRow> summary = {};
  std::string config = {};  // the complete configuration, as TOML
  std::vector<ReportRow> machine = {};
  std::vector<ReportRow> provenance = {};
  std::vector<std::string> commands = {};  // commands to try next
};

std::string render_html(const Report& report);

}  // namespace ingot
