#include "ingot/checkpoint/fp8_history.h"

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/finite.h"
#include "ingot/formats/safetensors.h"

namespace ingot {
namespace {

// The amax history of delayed scaling: one row of `steps` values per tensor.
std::span<float> fp8_history(Fp8State& fp8, size_t tensor) {
  const size_t steps = fp8.amaxes().size() / fp8.entries().size();
  return std::span(fp8.amaxes()).subspan(tensor * steps, steps);
}

}  // namespace

Fp8History copy_of_history(Fp8State& fp8) {
  Fp8History history{.names = {}, .amaxes = fp8.amaxes()};
  for (const Fp8State::Entry& entry : fp8.entries()) history.names.push_back(entry.name);
  return history;
}

void write_fp8_history(const std::filesystem::path& path, const Fp8History& history) {
  if (history.amaxes.empty()) return;
  const size_t steps = history.amaxes.size() / history.names.size();
  std::vector<SafetensorsSource> sources;
  for (size_t t = 0; t < history.names.size(); ++t)
    sources.push_back({.name = history.names[t] + ".amax",
                       .dtype = DType::f32,
                       .shape = {static_cast<int64_t>(steps)},
                       .bytes = std::as_bytes(std::span(history.amaxes).subspan(t * steps, steps)),
                       .stream = {}});
  for (const SafetensorsSource& source : sources)
    require_finite(path.filename().string(), source.name, source.dtype, 0, source.bytes);
  write_safetensors(path, sources);
}

void read_fp8_history(const std::filesystem::path& path, Fp8State& fp8) {
  if (fp8.amaxes().empty()) return;
  const SafetensorsFile file(path);
  for (size_t t = 0; t < fp8.entries().size(); ++t) {
    const std::span<float> history = fp8_history(fp8, t);
    const std::string name = fp8.entries()[t].name + ".amax";
    const SafetensorsEntry& entry = file.get(name);
    if (entry.dtype != DType::f32 || entry.bytes.size() != history.size_bytes())
      fail(ErrorKind::kData, "{}: tensor {} is {} {}, precision.fp8_amax_history asks for F32 ({})",
           file.label(), name, entry.dtype_name, entry.shape_text(), history.size());
    std::memcpy(history.data(), entry.bytes.data(), history.size_bytes());
  }
}

bool has_fp8_history(const std::filesystem::path& path, Fp8State& fp8) {
  if (fp8.amaxes().empty()) return true;
  if (!std::filesystem::exists(path)) return false;
  const SafetensorsFile file(path);
  for (size_t t = 0; t < fp8.entries().size(); ++t) {
    const SafetensorsEntry* entry = file.find(fp8.entries()[t].name + ".amax");
    if (!entry || entry->dtype != DType::f32 || entry->bytes.size() != fp8_history(fp8, t).size_bytes())
      return false;
  }
  return true;
}

}  // namespace ingot
