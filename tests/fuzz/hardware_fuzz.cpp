// A hardware description of arbitrary bytes is refused with a usage error, or its figures are in their
// ranges.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ingot/core/error.h"
#include "ingot/plan/hardware.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ingot::Hardware hardware = ingot::parse_hardware(text, "fuzz.toml");
    const bool is_valid = hardware.node.devices >= 1 && hardware.network.nics >= 1 &&
                          std::isfinite(hardware.node.link_bytes_per_s) && hardware.node.link_fraction > 0 &&
                          hardware.network.nic_fraction <= 1;
    if (!is_valid) std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kUsage) std::abort();
  }
  return 0;
}
