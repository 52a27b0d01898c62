#include "ingot/core/error.h"
#include "ingot/formats/tiktoken.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    ingot::write_tiktoken(ingot::read_tiktoken({reinterpret_cast<const char*>(data), size}, "fuzz"));
  } catch (const ingot::Error&) {
  }
  return 0;
}
