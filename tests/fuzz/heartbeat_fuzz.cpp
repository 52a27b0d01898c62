// A heartbeat of arbitrary bytes is refused, or its texts can be shown and its time is one.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ingot/run/record/heartbeat.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto sign = ingot::parse_heartbeat(std::string(reinterpret_cast<const char*>(data), size));
  if (!sign) return 0;
  for (const std::string& text : {sign->phase, sign->process.host})
    if (text.find('\x1b') != std::string::npos) std::abort();
  return 0;
}
