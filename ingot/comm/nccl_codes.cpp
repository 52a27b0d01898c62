// The functions of ingot::nccl that need no NCCL.
#include <cstring>

#include "ingot/comm/nccl_group.h"
#include "ingot/core/error.h"

namespace ingot::nccl {

// These are the codes of nccl.h; group_nccl.cpp checks them by static_assert.
int dtype_code(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::f8e4m3:  // can be transferred, not reduced
    case DType::f8e5m2:
      return 1;
    case DType::i32:
      return 2;
    case DType::u32:
      return 3;
    case DType::i64:
      return 4;
    case DType::f16:
      return 6;
    case DType::f32:
      return 7;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 9;
    case DType::u16:
      break;
  }
  fail(ErrorKind::kInternal, "NCCL: no operation on {}", name(dtype));
}

int op_code(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kMin:
      return 3;
  }
  return 0;
}

bool have_own_devices(std::span<const RankDevice> ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].version == 0 || ranks[i].version != ranks[0].version) return false;
    for (size_t j = 0; j < i; ++j)
      if (std::strncmp(ranks[i].node, ranks[j].node, sizeof ranks[i].node) == 0 &&
          std::strncmp(ranks[i].bus, ranks[j].bus, sizeof ranks[i].bus) == 0)
        return false;
  }
  return true;
}

std::string failure_text(std::string_view group, std::string_view call, std::string_view operation,
                         uint64_t number, std::string_view cause) {
  if (operation.empty()) return fmt::format("NCCL: group {}: {}: {}", group, call, cause);
  return fmt::format("NCCL: group {}: {} '{}' (number {}): {}", group, call, operation, number, cause);
}

}  // namespace ingot::nccl
