// A hash of memory that finds every single flipped bit, at the speed of reading the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ingot {

// Returns the sum over all 32-bit words w_i of w_i * ((2 i + 1) mod 2^32), modulo 2^64; missing bytes of the
// last word count as zero. The factors are odd, so a changed word always changes the sum, and so does a swap
// of two words. The result does not depend on the number of threads. The hash is not cryptographic.
uint64_t memory_hash(std::span<const std::byte> bytes);

}  // namespace ingot
