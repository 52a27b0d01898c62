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

void write_fp8_history(const std::filesystem::path& path, Fp8State& fp8) {
  if (fp8.amaxes().empty()) return;
  std::vector<SafetensorsSource> sources;
  for (size_t t = 0; t < fp8.entries().size(); ++t) {
    const std::span<float> history = fp8_history(fp8, t);
    sources.push_back({.name = fp8.entries()[t].name + ".amax",
                       .dtype = DType::f32,
                       .shape = {std::ssize(history)},
                       .bytes = std::as_bytes(history),
                       .stream = {}});
  }
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
