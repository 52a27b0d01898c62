#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ingot/core/error.h"
#include "ingot/formats/hf_config.h"

// An accepted configuration has sizes that divide each other and survives being written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  try {
    const ingot::HfModelConfig config =
        ingot::parse_hf_config({reinterpret_cast<const char*>(data), size_bytes}, "fuzz");
    if (config.heads < 1 || config.kv_heads < 1 || config.heads % config.kv_heads != 0 || config.head_dim < 1)
      std::abort();
    if (!(ingot::parse_hf_config(ingot::hf_config_text(config), "again") == config)) std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
  }
  return 0;
}
