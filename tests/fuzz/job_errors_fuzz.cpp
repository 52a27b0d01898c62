// The error output of a job may hold any bytes; what is taken from it can be shown.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ingot/launch/job_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto cause = ingot::cause_in(std::string(reinterpret_cast<const char*>(data), size));
  if (!cause) return 0;
  for (const char c : ingot::describe(*cause))
    if (c == '\x1b' || c == '\n') std::abort();
  return 0;
}
