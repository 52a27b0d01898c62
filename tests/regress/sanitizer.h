// True if this program is built with AddressSanitizer. Limits of memory or address space mean nothing
// then: its shadow memory reserves terabytes of addresses, and its red zones take memory.
#pragma once

namespace ingot {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

}  // namespace ingot
