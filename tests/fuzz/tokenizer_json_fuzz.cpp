#include "ingot/core/error.h"
#include "ingot/data/tokenizer/tokenizer.h"

// An accepted tokenizer can encode, decode and be written and read again. A text that is cut where the
// tokenizer says has the ids of the whole text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = ingot::parse_tokenizer(text, "fuzz");
    const std::vector<ingot::TokenId> ids = ingot::encode(*tokenizer, text);
    const std::string decoded = ingot::decode(*tokenizer, ids);
    // Only pipelines, which are written as they were read, may change the text.
    if (tokenizer->to_json() != text && decoded != text) __builtin_trap();
    const size_t cut = tokenizer->find_cut(text, size / 2);
    std::vector<ingot::TokenId> halves = ingot::encode(*tokenizer, text.substr(0, cut));
    tokenizer->encode(text.substr(cut), halves);
    if (halves != ids) __builtin_trap();
    ingot::decode(*tokenizer, ingot::encode_with_special(*tokenizer, text));
    ingot::parse_tokenizer(tokenizer->to_json(), "again");
  } catch (const ingot::Error&) {
  }
  return 0;
}
