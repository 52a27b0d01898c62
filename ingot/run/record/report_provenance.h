// The rows of report.html about where a run comes from and how it ended, read from its run.json.
#pragma once

#include <filesystem>
#include <vector>

#include "ingot/formats/html_report.h"

namespace ingot {

// Returns program, commit, arguments, begin and end, host, libraries, hashes and the parts of the run (its
// start and each resume); empty if the file cannot be read.
std::vector<ReportRow> provenance_rows(const std::filesystem::path& run_json);

}  // namespace ingot
