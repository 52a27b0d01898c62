// parse_dataset refuses arbitrary bytes with a data error, or names only shards in its own folder.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ingot/core/error.h"
#include "ingot/data/dataset_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ingot::Dataset dataset = ingot::parse_dataset({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const std::string& file : dataset.train.files)
      if (file.find('/') != std::string::npos) std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kData) std::abort();
  }
  return 0;
}
