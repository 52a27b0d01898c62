// Whether this program is built with AddressSanitizer, whose shadow takes terabytes of addresses and whose
// red zones take memory: limits on either mean nothing there.
#pragma once

namespace ingot {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

}  // namespace ingot
