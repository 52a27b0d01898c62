#include "apps/precision_options.h"

#include "apps/command_line.h"
#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {

void PrecisionOptions::add_to(Command& command) {
  command.add_option("--compute", compute, "f32, bf16 or f16; default as it was trained");
  command.add_option("--weights", weights,
                     "int8: matrices as 8-bit integers, with a scale per 64 weights (on the CPU)");
}

std::optional<DType> PrecisionOptions::compute_dtype() const {
  if (compute.empty()) return std::nullopt;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (compute == name(dtype)) return dtype;
  fail(ErrorKind::kUsage, "--compute must be f32, bf16 or f16, got {}", visible_text(compute));
}

bool PrecisionOptions::has_int8_weights() const {
  if (weights.empty()) return false;
  if (weights != "int8")
    fail(ErrorKind::kUsage, "--weights must be int8, got {}; --compute chooses among f32, bf16 and f16",
         visible_text(weights));
  return true;
}

Device device_of(const std::string& name) {
  if (name == "cpu") return Device::kCpu;
  if (name == "cuda") return Device::kCuda;
  fail(ErrorKind::kUsage, "--device must be cpu or cuda, got {}", visible_text(name));
}

}  // namespace ingot
