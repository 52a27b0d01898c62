#include "ingot/optim/dynamic_map.h"

namespace ingot {

std::array<float, 256> dynamic_map(bool is_signed) {
  std::array<float, 256> map{};
  const int zero = is_signed ? kSignedZero : 0;
  map[static_cast<size_t>(zero)] = 0;
  map[255] = 1;
  int level = 0;
  double power = 1e-6;
  for (int i = 0; i < 7; ++i, power *= 10) {
    const int cells = (is_signed ? 1 : 2) << i;
    for (int c = 0; c < cells; ++c) {
      const auto value = static_cast<float>(power * (0.1 + 0.9 * (c + 0.5) / cells));
      ++level;
      map[static_cast<size_t>(zero) + static_cast<size_t>(level)] = value;
      if (is_signed) map[static_cast<size_t>(zero) - static_cast<size_t>(level)] = -value;
    }
  }
  return map;
}

}  // namespace ingot
