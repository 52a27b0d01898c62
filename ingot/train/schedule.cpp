#include "ingot/train/schedule.h"

namespace ingot {

std::vector<MicroOp> accumulation_schedule(int64_t micros) {
  std::vector<MicroOp> ops;
  for (int64_t m = 0; m < micros; ++m) {
    ops.push_back({MicroOp::Kind::kForward, m});
    ops.push_back({MicroOp::Kind::kBackward, m});
  }
  return ops;
}

}  // namespace ingot
