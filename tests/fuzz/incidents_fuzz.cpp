// incidents.jsonl of arbitrary bytes: lines that are no incident are left out, and what is read can be shown.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ingot/launch/incident_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto incidents = ingot::parse_incidents(std::string(reinterpret_cast<const char*>(data), size));
  const std::string shown = ingot::incident_summary(incidents);
  if (shown.empty() != incidents.empty()) std::abort();
  for (const char c : shown)
    if (c == '\x1b' || c == '\n' || c == '\r') std::abort();
  for (const std::string& advice : ingot::incident_advice(incidents))
    if (advice.empty()) std::abort();
  return 0;
}
