// A configuration file of arbitrary bytes is refused with a usage error, or its resolved text reads back
// to itself.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    ingot::ConfigBuilder builder;
    // A first byte of "!" makes the rest one --set; other input is a file.
    if (!text.empty() && text[0] == '!')
      builder.add_override(text.substr(1));
    else
      builder.add_toml(text, "fuzz.toml");
    const std::string resolved = ingot::config_toml(builder.build(), ingot::ConfigDocs::kComments);
    ingot::ConfigBuilder reread;
    reread.add_toml(resolved, "resolved.toml");
    if (ingot::config_toml(reread.build(), ingot::ConfigDocs::kComments) != resolved) std::abort();
  } catch (const ingot::Error& error) {
    if (error.kind() != ingot::ErrorKind::kUsage) std::abort();
  }
  return 0;
}
