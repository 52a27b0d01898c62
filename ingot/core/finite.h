// Tells finite numbers from NaN and infinities, at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ingot/core/dtype.h"

namespace ingot {

// The index of the first element that is not finite; nullopt if all are. Of f32, bf16 and f16; the codes of
// other dtypes are never looked at. The bytes may be unaligned. REQUIRES: whole elements.
std::optional<int64_t> first_not_finite(DType dtype, std::span<const std::byte> bytes);

// kNumerics error "FILE: tensor NAME, element 17 is nan", unless all elements are finite. first_element: the
// index in the tensor of the first one given.
void require_finite(std::string_view file, std::string_view tensor, DType dtype, int64_t first_element,
                    std::span<const std::byte> bytes);

}  // namespace ingot
