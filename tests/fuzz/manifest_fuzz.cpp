#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ingot/core/error.h"
#include "ingot/formats/manifest.h"

// The input is parsed twice: as a whole file, and with a valid closing hash appended. An accepted manifest
// is canonical: writing it gives the same bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::string text(reinterpret_cast<const char*>(data), size_bytes);
  const std::string sealed =
      fmt::format("{}\"self_xxh3_64\": \"{:016x}\"}}\n", text, XXH3_64bits(text.data(), text.size()));
  for (const std::string& candidate : {text, sealed}) {
    try {
      const ingot::Manifest manifest = ingot::parse_manifest(candidate, "fuzz");
      if (ingot::manifest_text(manifest) != candidate) std::abort();
      for (const ingot::ManifestFile& file : manifest.files)
        if (file.name.find('/') != std::string::npos || file.name == "..") std::abort();
    } catch (const ingot::Error& error) {
      if (error.kind() != ingot::ErrorKind::kData) std::abort();
    }
  }
  return 0;
}
