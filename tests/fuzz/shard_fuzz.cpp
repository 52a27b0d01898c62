// parse_shard refuses arbitrary bytes, or every token that it promises lies in the file.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "ingot/core/error.h"
#include "ingot/formats/shard.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const auto layout : {ingot::ShardLayout::kHeader, ingot::ShardLayout::kHeaderlessU16}) {
    try {
      const ingot::ShardInfo info = ingot::parse_shard(bytes, "fuzz", layout);
      const size_t token_bytes = static_cast<size_t>(info.tokens) * ingot::size_bytes(info.dtype);
      if (info.tokens < 0 || info.offset_bytes + token_bytes != size) std::abort();
    } catch (const ingot::Error& error) {
      if (error.kind() != ingot::ErrorKind::kData) std::abort();
    }
  }
  return 0;
}
