// Adds lines of arbitrary bytes to a store: what a page receives about them is JSON, and the store stays
// bounded.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ingot/formats/chart/metrics_store.h"
#include "ingot/watch/view_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  ingot::MetricsStore store(8);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    store.add(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (store.series().size() > ingot::MetricsStore::kMaxKeys) std::abort();
  for (const std::string& json : {ingot::series_json(store, {}), ingot::lines_json(0, store, 0, 0)})
    if (!nlohmann::json::accept(json)) std::abort();
  return 0;
}
