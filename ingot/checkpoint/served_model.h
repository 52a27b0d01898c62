// ServedModel is a model that answers and does not learn: loaded from a checkpoint, on the CPU or a device.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/core/stream.h"
#include "ingot/nn/device_weights.h"

namespace ingot {

struct ServedOptions {
  std::optional<DType> compute = {};  // f32, bf16 or f16; nullopt: as the model was trained
  bool is_averaged = false;           // use the moving averages of the weights (optimizer.ema)
  bool has_int8_weights = false;      // store matrices as 8-bit codes only (nn/int8_weights.h), on the CPU
  Device device = Device::kCpu;
};

// Loads a model into host memory (load_model). Damaged checkpoints are named on standard error.
LoadedModel load_served(const std::filesystem::path& checkpoint, const ServedOptions& options);

class ServedModel {
 public:
  // Calls load_served(). Throws a kUsage error before if there is no such device, or if it is to read 8-bit
  // weights.
  ServedModel(const std::filesystem::path& checkpoint, const ServedOptions& options);

  // Moves the weights to the device of the options. Throws a kMemory error if there is no room for them and
  // for what works with the model, which takes `host` and `device` bytes and is called `what` in the error.
  void make_ready(size_t host, size_t device, const std::string& what);

  const std::filesystem::path& path() const { return loaded_.path; }
  const Transformer& model() const { return *loaded_.model; }
  const Tokenizer& tokenizer() const { return *loaded_.tokenizer; }
  Stream& stream() { return stream_; }
  // REQUIRES: make_ready() was called.
  ParamStore& params() { return there_ ? static_cast<ParamStore&>(*there_) : *loaded_.params; }

 private:
  Stream stream_;
  LoadedModel loaded_;
  std::optional<DeviceWeights> there_;
};

}  // namespace ingot
