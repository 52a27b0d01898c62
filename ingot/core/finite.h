// Finds NaN and infinities, at the speed of memory bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ingot/core/dtype.h"

namespace ingot {

// Returns the index of the first element that is not finite, or nullopt if all are. Examines f32, bf16
// and f16; returns nullopt for every other dtype. The bytes may be unaligned. REQUIRES: bytes.size() is a
// multiple of the element size.
std::optional<int64_t> first_not_finite(DType dtype, std::span<const std::byte> bytes);

// Throws a kNumerics error "FILE: tensor NAME, element 17 is nan" unless all elements are finite.
// first_element is the index within the tensor of the first element in `bytes`.
void require_finite(std::string_view file, std::string_view tensor, DType dtype, int64_t first_element,
                    std::span<const std::byte> bytes);

}  // namespace ingot
