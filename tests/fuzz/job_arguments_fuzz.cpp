// Checks that what users write for hosts, counts, durations and times is valid or refused. Hosts are refused
// with a usage error.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ingot/config/config_units.h"
#include "ingot/core/error.h"
#include "ingot/launch/local_job.h"
#include "ingot/run/record/utc_time.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    for (const ingot::HostSlots& host : ingot::parse_hosts(text))
      if (host.name.empty() || host.slots < 1) std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kUsage) std::abort();
  }
  if (const auto seconds = ingot::parse_duration_s(text); seconds && !std::isfinite(*seconds)) std::abort();
  if (const auto time = ingot::parse_utc(text); time && ingot::parse_utc(ingot::utc_text(*time)) != time)
    std::abort();
  static_cast<void>(ingot::parse_count(text));
  return 0;
}
