// The target of a position that predicts nothing: PyTorch's ignore_index.
#pragma once

#include <cstdint>

namespace ingot {

inline constexpr int32_t kIgnoreIndex = -100;

}  // namespace ingot
