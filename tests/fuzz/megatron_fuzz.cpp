// parse_megatron_index refuses arbitrary bytes with a data error, or every document begins inside the tokens.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "ingot/core/error.h"
#include "ingot/formats/megatron.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ingot::MegatronIndex index =
        ingot::parse_megatron_index(std::as_bytes(std::span(data, size)), "fuzz");
    int64_t before = -1;
    for (const int64_t begin : index.document_begins) {
      if (begin <= before || begin >= index.tokens) std::abort();
      before = begin;
    }
    if (index.tokens < 0 || ingot::size_bytes(index.type) < 1) std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
  }
  return 0;
}
