// Makes the rows of report.html about the origin and the end of a run, from its run.json.
#pragma once

#include <filesystem>
#include <vector>

#include "ingot/formats/html_report.h"

namespace ingot {

// Returns program, commit, arguments, begin and end, host, libraries, hashes and the parts of the run (its
// start and each resume); empty if the file cannot be read.
std::vector<ReportRow> provenance_rows(const std::filesystem::path& run_json);

}  // namespace ingot
