#include "ingot/config/device_support.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/nn/models/model.h"

namespace ingot {
namespace {

constexpr const char* kWhere = "with train.device = \"cuda\"";

[[noreturn]] void refuse(const std::string& key, const std::string& nearest, const std::string& got) {
  fail(ErrorKind::kUsage, "{} must be {} {}, got {}", key, nearest, kWhere, got);
}

constexpr int64_t kGranule = 16;  // the dims of 8-bit products must be multiples of it

// Compute capabilities of cuBLASLt's FP8 products, those with one scale per tensor and those with a scale per
// row.
constexpr int kFp8Capability = 89, kFp8RowsCapability = 90;

// `of` is "head.precision" or "precision.fp8".
void require_granule(const char* key, int64_t value, const char* of) {
  if (value % kGranule != 0)
    refuse(key, fmt::format("a multiple of {} for {}", kGranule, of), fmt::format("{}", value));
}

// Each rank multiplies its shard of a linear, so the shard's dims count too.
void require_fp8_shards(const RunConfig& config) {
  const int64_t tp = config.parallel.tp;
  if (tp == 1) return;
  ModelConfig model = config.model.resolved();
  if (model.vocab == 0) model.vocab = tp * model.vocab_multiple;  // the tables do not matter here
  const TensorParallel first_rank{.rank = 0, .count = static_cast<int>(tp)};
  first_rank.validate(model);
  const ParamList params = parameters_of(model, first_rank);
  for (const ParamSpec& spec : params.specs()) {
    if (spec.role != ParamRole::kMatrix) continue;
    const std::string name = spec.name.substr(0, spec.name.rfind('.'));
    const Shape& full = spec.full_shape();
    if (config.precision.fp8.converts(name, full[0], full[1]) &&
        (spec.shape[0] % kGranule != 0 || spec.shape[1] % kGranule != 0))
      refuse("precision.fp8_layers",
             fmt::format("linears whose shards on parallel.tp = {} ranks are multiples of {}", tp, kGranule),
             fmt::format("{} ({} x {} on a rank)", name, spec.shape[0], spec.shape[1]));
  }
}

void validate_fp8(const RunConfig& config) {
  const Fp8Recipe recipe = config.precision.fp8.recipe;
  const bool is_head = config.head.precision == HeadPrecision::kFp8;
  if (is_head || recipe != Fp8Recipe::kNone)
    require_granule("train.batch_size * model.context", config.train.batch_size * config.model.context,
                    is_head ? "head.precision = \"fp8\"" : "precision.fp8");
  if (recipe != Fp8Recipe::kNone) require_fp8_shards(config);
  if (!is_head) return;
  require_granule("model.width", config.model.width, "head.precision = \"fp8\"");
  const int64_t tp = config.parallel.tp, rows = config.model.vocab_multiple;
  if (rows % (kGranule * tp) != 0)
    refuse("model.vocab_multiple",
           fmt::format("a multiple of {} for head.precision = \"fp8\"{}", kGranule * tp,
                       tp == 1 ? "" : fmt::format(" and parallel.tp = {}", tp)),
           fmt::format("{}", rows));
}

bool has_f16_with_fp8(const RunConfig& config) {
  return config.precision.compute == DType::f16 &&
         (config.precision.fp8.recipe != Fp8Recipe::kNone || config.head.precision == HeadPrecision::kFp8);
}

}  // namespace

void validate_on_cuda(const RunConfig& config) {
  validate_fp8(config);
  if (config.head.filter > 0) refuse("head.filter", "0", fmt::format("{}", config.head.filter));
}

void validate_graph(const RunConfig& config) {
  constexpr const char* kGraph = "with train.graph = true";
  const auto require = [&](bool is_right, const char* key, const char* nearest) {
    if (!is_right) fail(ErrorKind::kUsage, "{} must be {} {}", key, nearest, kGraph);
  };
  require(config.train.device == Device::kCuda, "train.device", "cuda");
  require(!has_f16_with_fp8(config), "precision.compute", "bf16 beside FP8");
  require(config.head.filter == 0, "head.filter", "0");
  require(config.guard.spike == GuardPolicy::kReport, "guard.spike", "report");
}

std::string lacked_format(const RunConfig& config, const std::string& device, int compute_capability) {
  const auto lacks = [&](const char* setting, const char* format, int least, const char* instead) {
    return fmt::format(
        "{}: {} has compute capability {}.{}, and products of {} need {}.{}; set {}, or take a newer device",
        setting, device, compute_capability / 10, compute_capability % 10, format, least / 10, least % 10,
        instead);
  };
  const Fp8Recipe recipe = config.precision.fp8.recipe;
  const bool has_rows = recipe == Fp8Recipe::kRowwise || recipe == Fp8Recipe::kRowwiseGwHp;
  if (compute_capability < kFp8Capability) {
    if (recipe != Fp8Recipe::kNone)
      return lacks("precision.fp8", "FP8", kFp8Capability, "precision.fp8 = \"none\"");
    if (config.head.precision == HeadPrecision::kFp8)
      return lacks("head.precision = \"fp8\"", "FP8", kFp8Capability, "head.precision = \"bf16\"");
  }
  if (has_rows && compute_capability < kFp8RowsCapability)
    return lacks("precision.fp8", "FP8 with a scale per row", kFp8RowsCapability,
                 "precision.fp8 = \"tensorwise\"");
  return "";
}

std::string fp8_support(int compute_capability) {
  if (compute_capability < kFp8Capability) return "no FP8";
  return compute_capability < kFp8RowsCapability ? "FP8 with one scale per tensor" : "FP8";
}

void require_device(const RunConfig& config) {
  if (config.train.device == Device::kCpu) return;
  if (const auto reason = no_cuda_reason())
    fail(ErrorKind::kUsage, "train.device = \"cuda\": {}; or train with train.device = \"cpu\"", *reason);
  if constexpr (kHasCuda) {
    const cuda::DeviceInfo device = cuda::devices().at(static_cast<size_t>(cuda::current_device()));
    if (const std::string reason = lacked_format(config, device.name, 10 * device.major + device.minor);
        !reason.empty())
      fail(ErrorKind::kUsage, "{}", reason);
  }
}

}  // namespace ingot
