// The script of `ingot export-run` (tools/export_run.py), built into the program.
#pragma once

#include <string_view>

namespace ingot {

std::string_view export_run_script();

}  // namespace ingot
