#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "ingot/core/error.h"
#include "ingot/formats/safetensors_set.h"

// An accepted index names files in its own folder only, and survives being written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  try {
    const auto files =
        ingot::parse_safetensors_index({reinterpret_cast<const char*>(data), size_bytes}, "fuzz");
    const std::filesystem::path folder = "/a/b";
    for (const auto& [tensor, file] : files)
      if ((folder / file).lexically_normal().parent_path() != folder) std::abort();
    if (ingot::parse_safetensors_index(ingot::safetensors_index_text(files, 1), "again") != files)
      std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
  }
  return 0;
}
