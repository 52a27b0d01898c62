// Text of arbitrary bytes in SVG and HTML: no tag, quote or control character of it is left.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ingot/formats/markup.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string out = ingot::escape_markup(std::string_view(reinterpret_cast<const char*>(data), size));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto c = static_cast<unsigned char>(out[i]);
    if (c == '<' || c == '>' || c == '"' || c == '\'' || (c < 0x20 && c != '\t' && c != '\n' && c != '\r'))
      std::abort();
    if (c == '&' && out.find(';', i) == std::string::npos) std::abort();
  }
  return 0;
}
