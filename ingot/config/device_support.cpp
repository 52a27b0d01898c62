#include "ingot/config/device_support.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/optim/rules/all_rules.h"

namespace ingot {
namespace {

constexpr const char* kWhere = "with train.device = \"cuda\"";

[[noreturn]] void refuse(const std::string& key, const std::string& nearest, const std::string& got) {
  fail(ErrorKind::kUsage, "{} must be {} {}, got {}", key, nearest, kWhere, got);
}

constexpr int64_t kGranule = 16;  // the dims of 8-bit products must be multiples of it

// `of` is "head.precision" or "precision.fp8".
void require_granule(const char* key, int64_t value, const char* of) {
  if (value % kGranule != 0)
    refuse(key, fmt::format("a multiple of {} for {}", kGranule, of), fmt::format("{}", value));
}

void validate_fp8(const RunConfig& config) {
  const Fp8Recipe recipe = config.precision.fp8.recipe;
  const bool is_head = config.head.precision == HeadDtype::kFp8;
  if (is_head || recipe != Fp8Recipe::kNone)
    require_granule("train.batch_size * model.context", config.train.batch_size * config.model.context,
                    is_head ? "head.precision = \"fp8\"" : "precision.fp8");
  if (!is_head) return;
  require_granule("model.width", config.model.width, "head.precision = \"fp8\"");
  require_granule("model.vocab_multiple", config.model.vocab_multiple, "head.precision = \"fp8\"");
}

// Returns a rule of the optimizer that needs whole matrices, or null.
const RuleEntry* matrix_rule_of(const OptimizerConfig& optimizer) {
  std::vector<const RuleEntry*> used{&resolve_rule(optimizer.rule, optimizer.rule)};
  for (const GroupConfig& group : optimizer.groups) used.push_back(&resolve_rule(group.rule, optimizer.rule));
  const auto found =
      std::find_if(used.begin(), used.end(), [](const RuleEntry* entry) { return entry->is_matrix_rule; });
  return found == used.end() ? nullptr : *found;
}

void validate_ranks(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.ranks() != parallel.dp * parallel.fsdp)
    refuse("parallel", "replicas and shards (parallel.dp, parallel.fsdp)", parallel.to_string());
  for (const DType payload : {parallel.payload, parallel.payload_ends.value_or(parallel.payload)})
    if (payload == DType::f16) refuse("parallel.payload", "f32 or bf16", "f16");
  if (parallel.has_error_feedback) refuse("parallel.error_feedback", "false", "true");
  const RuleEntry* matrix_rule = matrix_rule_of(config.optimizer);
  if (parallel.ranks() > 1 && matrix_rule)
    refuse("parallel", fmt::format("one rank for the optimizer {}", matrix_rule->name), parallel.to_string());
}

bool has_f16_with_fp8(const RunConfig& config) {
  return config.precision.compute == DType::f16 &&
         (config.precision.fp8.recipe != Fp8Recipe::kNone || config.head.precision == HeadDtype::kFp8);
}

}  // namespace

void validate_on_cuda(const RunConfig& config) {
  validate_fp8(config);
  if (config.head.filter > 0) refuse("head.filter", "0", fmt::format("{}", config.head.filter));
  validate_ranks(config);
}

void validate_graph(const RunConfig& config) {
  constexpr const char* kGraph = "with train.graph = true";
  const auto require = [&](bool is_right, const char* key, const char* nearest) {
    if (!is_right) fail(ErrorKind::kUsage, "{} must be {} {}", key, nearest, kGraph);
  };
  require(config.train.device == Device::kCuda, "train.device", "cuda");
  require(config.model.dropout == 0, "model.dropout", "0");
  require(config.parallel.ranks() == 1, "parallel", "one rank");
  require(config.precision.fp8.recipe != Fp8Recipe::kDelayed, "precision.fp8", "none, tensorwise or rowwise");
  require(!has_f16_with_fp8(config), "precision.compute", "bf16 beside FP8");
  require(config.head.filter == 0, "head.filter", "0");
  require(config.guard.spike == GuardPolicy::kReport, "guard.spike", "report");
}

void require_device(Device device) {
  if (device == Device::kCpu) return;
  if (const auto reason = no_cuda_reason())
    fail(ErrorKind::kUsage, "train.device = \"cuda\": {}; or train with train.device = \"cpu\"", *reason);
}

}  // namespace ingot
