#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ingot/core/error.h"
#include "ingot/formats/safetensors.h"

// In an accepted file the tensors tile the data, and each is found by its name.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size_bytes);
  try {
    const ingot::SafetensorsFile file(bytes, "fuzz");
    const std::byte* next = nullptr;
    unsigned sum = 0;
    for (const ingot::SafetensorsEntry& entry : file.tensors()) {
      if (next && entry.bytes.data() != next) std::abort();
      next = entry.bytes.data() + entry.bytes.size();
      for (const std::byte b : entry.bytes) sum += static_cast<unsigned>(b);
      if (file.find(entry.name) != &entry || entry.elements() < 0) std::abort();
    }
    if (next && next != bytes.data() + bytes.size()) std::abort();
    if (sum == ~0u) std::abort();  // keeps the compiler from removing the reads
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
  }
  return 0;
}
