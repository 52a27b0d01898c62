#include "ingot/checkpoint/served_model.h"

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"
#include "ingot/memory/memory_check.h"

namespace ingot {
namespace {

// Makes the stream before the model is loaded, so that a missing device is reported at once.
Stream stream_of(const ServedOptions& options) {
  if (options.has_int8_weights && options.device != Device::kCpu)
    fail(ErrorKind::kUsage, "--weights int8 is for the CPU; leave out --weights or --device {}",
         name(options.device));
  return make_stream(options.device);
}

}  // namespace

LoadedModel load_served(const std::filesystem::path& checkpoint, const ServedOptions& options) {
  const auto report = [](const std::filesystem::path& damaged, const std::string& what) {
    fmt::print(stderr, "{}\n",
               visible_text(fmt::format("warning: {}: {}; passed over", damaged.string(), what)));
  };
  return load_model(checkpoint, options.compute,
                    options.is_averaged ? LoadedWeights::kAveraged : LoadedWeights::kTrained, report,
                    options.has_int8_weights ? MatrixFormat::kInt8 : MatrixFormat::kCompute);
}

ServedModel::ServedModel(const std::filesystem::path& checkpoint, const ServedOptions& options)
    : stream_(stream_of(options)), loaded_(load_served(checkpoint, options)) {}

void ServedModel::make_ready(size_t host, size_t device, const std::string& what) {
  require_memory(host, what);
  if (stream_.device != Device::kCuda) return;
  Transformer& model = *loaded_.model;
  const DType compute = model.compute();
  require_device_memory(device + DeviceWeights::planned_bytes(model.params(), compute, stream_.device),
                        "the weights, and " + what);
  there_.emplace(*loaded_.params, compute, stream_);
  loaded_.params.reset();
  model.bring_to_device(stream_);
}

}  // namespace ingot
