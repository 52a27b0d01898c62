// parse_jsonl_line refuses arbitrary bytes with a data error, or returns text no longer than the line.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ingot/core/error.h"
#include "ingot/formats/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  try {
    if (ingot::parse_jsonl_line(line, "text", "fuzz", 1).size() > size) std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
  }
  return 0;
}
