#include "ingot/core/error.h"
#include "ingot/data/tokenizer/tokenizer.h"

// An accepted tokenizer can encode, decode and be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = ingot::parse_tokenizer(text, "fuzz");
    if (ingot::decode(*tokenizer, ingot::encode(*tokenizer, text)) != text) __builtin_trap();
    ingot::parse_tokenizer(tokenizer->to_json(), "again");
  } catch (const ingot::Error&) {
  }
  return 0;
}
