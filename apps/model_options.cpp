#include "apps/model_options.h"

#include "apps/command_line.h"
#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

Device device_of(const std::string& text) {
  for (const Device device : {Device::kCpu, Device::kCuda})
    if (text == name(device)) return device;
  fail(ErrorKind::kUsage, "--device must be cpu or cuda, got {}", visible_text(text));
}

std::optional<DType> compute_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (text == name(dtype)) return dtype;
  fail(ErrorKind::kUsage, "--compute must be f32, bf16 or f16, got {}", visible_text(text));
}

bool are_int8(const std::string& weights) {
  if (!weights.empty() && weights != "int8")
    fail(ErrorKind::kUsage, "--weights must be int8, got {}; --compute chooses among f32, bf16 and f16",
         visible_text(weights));
  return !weights.empty();
}

}  // namespace

void ModelOptions::add_to(Command& command) {
  command.add_option("--device", device, "cpu or cuda")->capture_default_str();
  command.add_option("--compute", compute, "f32, bf16 or f16; default as it was trained");
  command.add_option("--weights", weights,
                     "int8: matrices as 8-bit integers, with a scale per 64 weights (on the CPU)");
  command.add_flag("--ema", is_averaged, "The moving averages of the weights (optimizer.ema)");
}

ServedOptions ModelOptions::served() const {
  return {.compute = compute_of(compute),
          .is_averaged = is_averaged,
          .has_int8_weights = are_int8(weights),
          .device = device_of(device)};
}

void add_sample_options(Command& command, SampleConfig& sample) {
  command.add_option("--temperature", sample.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command.add_option("--top-k", sample.top_k, "From the k likeliest tokens; 0: all")
      ->count(0)
      ->capture_default_str();
  command.add_option("--top-p", sample.top_p, "From the likeliest tokens of this total probability")
      ->capture_default_str();
}

}  // namespace ingot
