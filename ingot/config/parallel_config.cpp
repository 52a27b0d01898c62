#include "ingot/config/parallel_config.h"

#include <utility>

#include "ingot/core/error.h"

namespace ingot {

std::string ParallelConfig::to_string() const {
  const std::pair<const char*, int64_t> degrees[] = {{"dp", dp}, {"fsdp", fsdp}, {"tp", tp}, {"pp", pp}};
  std::string text;
  for (const auto& [name, degree] : degrees)
    if (degree != 1) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, degree);
  if (chunks != 1) text += fmt::format(" chunks={}", chunks);
  return text.empty() ? "dp=1" : text;
}

void ParallelConfig::validate() const {
  if (pp == 1 && chunks != 1)
    fail(ErrorKind::kUsage, "parallel.chunks must be 1 with parallel.pp = 1, got {}", chunks);
  if (has_error_feedback && payload == DType::f32)
    fail(ErrorKind::kUsage,
         "parallel.error_feedback needs parallel.payload = \"bf16\" or \"f16\": f32 loses nothing");
  if (timeout_s && !(*timeout_s > 0))
    fail(ErrorKind::kUsage, "parallel.timeout must be above 0s or auto, got {}s", *timeout_s);
}

}  // namespace ingot
