// The mutator of fuzz targets that read JSON, also one object per line. It adds structural mutations to
// libFuzzer's own mutations of bytes.
#include <cstdint>
#include <cstring>

#include "tests/fuzz/mutate_json.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 3 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data), size);
  for (size_t n = 1 + random() % 3; n > 0; --n) text = ingot::mutate_json(text, random);
  const size_t new_size = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), new_size);
  return new_size;
}
