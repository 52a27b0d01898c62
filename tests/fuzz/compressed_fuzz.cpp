// Decompressor refuses arbitrary bytes with a data error, or unpacks them in the same way whatever the blocks
// are.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "ingot/core/error.h"
#include "ingot/formats/compressed.h"

namespace {

constexpr size_t kMax = size_t{1} << 20;  // a small input can unpack to gigabytes

// Unpacks at most kMax bytes. Returns the error, or nothing.
std::string unpack(std::string_view bytes, size_t block, std::string& text) {
  try {
    ingot::Decompressor decompressor(bytes, "fuzz");
    std::string out(block, '\0');
    while (text.size() < kMax) {
      const size_t count = decompressor.read(out);
      text.append(out, 0, count);
      if (decompressor.position() > bytes.size()) std::abort();
      if (count < block) return {};
    }
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
    return error.what();
  }
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (ingot::compression_of(bytes) == ingot::Compression::kNone) return 0;
  std::string large, small;
  const std::string large_error = unpack(bytes, 4096, large), small_error = unpack(bytes, 7, small);
  const size_t common = std::min(large.size(), small.size());
  if (large.compare(0, common, small, 0, common) != 0) std::abort();
  if (large.size() < kMax && small.size() < kMax && large_error.empty() != small_error.empty()) std::abort();
  return 0;
}
