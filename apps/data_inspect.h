// What `ingot data inspect` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

struct InspectOptions {
  std::vector<std::string> data;
  std::string tokenizer, text_field = "text";
  int64_t samples = 3;  // documents shown
  bool is_json = false;
};

// Inspects each spec. If one of several is not valid, it is named, the others follow, and a kData error ends the command.
void inspect_data(const InspectOptions& options);

}  // namespace ingot
